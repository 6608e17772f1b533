"""Transports are found by the scheme of their URL."""

from __future__ import annotations

import importlib
from textwrap import dedent

import pytest

from replay.errors import PluginError, UsageError
from replay.transports import open_sink, open_source


@pytest.mark.parametrize("url", ["", "memory", ":x", "/a/file"])
def test_not_a_url(url):
    for opening in (open_sink, open_source):
        with pytest.raises(UsageError, match="is not the URL of a transport"):
            opening(url)


def test_no_such_transport():
    with pytest.raises(PluginError, match=r"no transport 'memroy'; did you mean 'memory'\?"):
        open_sink("memroy:")
    with pytest.raises(PluginError, match=r"no transport 'carrier-pigeon'\.  Try: one of .*memory"):
        open_source("carrier-pigeon://home")


def test_scheme_in_capitals():
    sink, source = open_sink("MEMORY:capitals"), open_source("memory:capitals")
    assert sink.channel is source.channel


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[alert_replay.transports]\nacme = acme_transport:Acme\n"
    )
    (tmp_path / "acme_transport.py").write_text(
        dedent("""
            class Acme:
                @staticmethod
                def open_sink(url):
                    return "sink", url

                @staticmethod
                def open_source(url):
                    return "source", url
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


def test_transport_of_another_distribution(plug_in):
    assert open_sink("acme:x?y=1") == ("sink", "acme:x?y=1")
    assert open_source("acme:x") == ("source", "acme:x")
