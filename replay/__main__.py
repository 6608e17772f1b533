"""``python -m replay`` is ``alert-replay``."""

from __future__ import annotations

from replay.cli import main

if __name__ == "__main__":
    main()
