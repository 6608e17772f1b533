"""Built-in detectors. Each file holds one idea; each imports :mod:`replay.api` and nothing else of ours."""
