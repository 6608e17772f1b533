"""Brokers for the Kafka tests: one of each kind a session, started when first asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from kafka_brokers import Apache, Tansu

from replay.transports.kafka.settings import Settings

HERE = Path(__file__).parent
LEFT = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


def pytest_collection_modifyitems(items):
    """kafka-python leaves a connection that it was just making to the garbage collector."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(LEFT)


CLIENTS = ("kafka-python", "confluent")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def tansu(tmp_path_factory):
    with Tansu(tmp_path_factory.mktemp("tansu")) as broker:
        yield broker


@pytest.fixture(scope="session")
def apache(tmp_path_factory):
    with Apache(tmp_path_factory.mktemp("apache")) as broker:
        yield broker


@pytest.fixture(params=["tansu", "apache"])
def broker(request):
    """Either broker."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=CLIENTS)
def client_name(request):
    """Either client."""
    return request.param


@pytest.fixture
def topic():
    """A topic's name that no other test has."""
    return f"alerts-{next(_numbers)}"


@pytest.fixture
def settings(broker, client_name, topic):
    """Either broker through either client."""
    return Settings(broker.address, topic, client=client_name, wait=20.0)
