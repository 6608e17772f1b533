"""Every transport that needs no service keeps the contract."""

from __future__ import annotations

import itertools

import pytest

from replay.testing import transport_checks
from replay.transports import open_sink, open_source

NUMBERS = itertools.count()
URLS = {
    "memory": "memory:contract-{}",
    "tight": "memory:contract-{}?max_alerts=1&max_messages=20",
}


def maker(url):
    def make():
        name = url.format(next(NUMBERS))
        return open_sink(name), open_source(name.partition("?")[0])

    return make


CHECKS = [
    pytest.param(check, id=f"{name}:{check.__name__}")
    for name, url in URLS.items()
    for check in transport_checks(maker(url))
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check):
    check()
