"""What a word of help may cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pyarrow", "rich", "simpy", "kafka", "prometheus_client", "pandas", "starlette"}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["-h"], ["run", "--help"], ["rnu"]])
def test_help_is_light(words):
    code = (
        "import sys\n"
        "from replay.cli import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split("LOADED")[1].split()}
    assert not loaded & HEAVY
    assert "detectors" not in loaded


def test_version_imports_next_to_nothing():
    code = "import sys; from replay.cli import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("alert-replay, version ")
    assert not {"click", "typing", "importlib.metadata"} & set(done.stdout.split())
