"""A real broker for tests: the same launcher that ``streamer up`` uses.

``STREAMER_TEST_BOOTSTRAP`` names a broker that runs already; then none is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from streamer.stack.kafka_home import prepare_home
from streamer.stack.kafka_server import single_server
from streamer.stack.kafka_warm import warm_up


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """The bootstrap string of a broker that is warm and lives as long as the block."""
    given = os.environ.get("STREAMER_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    server = single_server(folder, prepare_home())
    server.start()
    try:
        warm_up(server.bootstrap)
        yield server.bootstrap
    finally:
        server.stop()


@dataclass(slots=True)
class Topics:
    """Makes topics under the prefix of one test."""

    bootstrap: str
    prefix: str

    def create(self, name: str, partitions: int = 1, **config: str | int) -> str:
        """One topic; ``config`` keys have ``_`` for ``.``. Returns its full name."""
        full = f"{self.prefix}{name}"
        settings = {"message.timestamp.type": "LogAppendTime"}
        settings.update({key.replace("_", "."): str(value) for key, value in config.items()})
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(full, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic], operation_timeout=10)[full].result(15)
        return full
