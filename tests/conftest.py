"""Fixtures of all layers; a test that asks for ``kafka`` gets the one real broker of the run."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.kafka_server import Topics, running_broker
from tests.support.stacks import StackFactory

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed, for fixtures that then show logs."""
    report = yield
    if report.failed and call.when in ("setup", "call"):
        item.stash[FAILED] = True
    return report


# How long one example takes says more of the machine than of the code.
settings.register_profile("streamer", deadline=None)
settings.load_profile("streamer")


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


@pytest.fixture
def stack_factory(
    kafka: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[StackFactory]:
    """Starts route, work and aggregate on the broker of the run; see :class:`StackFactory`."""
    factory = StackFactory(kafka, tmp_path)
    yield factory
    factory.stop()
    if request.node.stash.get(FAILED, False):
        factory.show_logs()
