"""Distributions made on the spot: folders that look installed."""

from __future__ import annotations

import importlib
import sys
from textwrap import dedent

import pytest


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make a distribution with modules and entry points importable until the test is over."""
    made = []

    def install(name, version="1.0", *, entry_points="", packages="", **modules):
        site = tmp_path / name
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(dedent(entry_points))
        (info / "top_level.txt").write_text(packages)
        for module, source in modules.items():
            (site / f"{module}.py").write_text(dedent(source))
            made.append(module)
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()

    yield install
    for module in made:
        sys.modules.pop(module, None)


@pytest.fixture
def write(tmp_path):
    """Write a Python file; give its path."""

    def write(name, source):
        path = tmp_path / name
        path.write_text(dedent(source))
        return path

    return write
