"""Prometheus rule files as detectors: PromQL evaluated in trace time, without a server.

A file per noun: :mod:`~detectors.rules.language` (text to tree), :mod:`~detectors.rules.series`
(samples), :mod:`~detectors.rules.evaluation` (tree and samples to vectors, over many steps at
once), :mod:`~detectors.rules.files` (rule files), :mod:`~detectors.rules.groups` (pending and
firing), :mod:`~detectors.rules.detector` (a rule file watching a job).
"""
