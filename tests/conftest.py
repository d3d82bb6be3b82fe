"""Fixtures of all layers; a test that asks for ``kafka`` gets the one real broker of the run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.kafka_server import Topics, running_broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap string of a real broker, shared by the whole run."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def prefix() -> str:
    """Topic prefix of this test alone, so that tests share a broker without meeting."""
    return f"t{uuid.uuid4().hex[:8]}."


@pytest.fixture
def topics(kafka: str, prefix: str) -> Topics:
    """Makes topics under ``prefix`` on the broker of the run."""
    return Topics(kafka, prefix)
