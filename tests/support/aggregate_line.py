"""The aggregate process on a real broker: results and entries in, outputs out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from streamer.event import wire
from streamer.event.records import Completion, JobEntry, OutputRun, ResultRecord
from streamer.event.topics import TopicNames, job_entry_key, job_key, partition_of
from tests.support.results import LANE
from tests.support.work_line import PARTITIONS, ROOT, read_until


class AggregateProcess:
    """One ``streamer aggregate`` process for the bulk lane, started again and again."""

    def __init__(
        self, bootstrap: str, prefix: str, folder: Path, *, name: str = "aggregate",
        **environment: str,
    ) -> None:  # fmt: skip
        self._name = name
        (folder / "none.yaml").touch()  # no settings but those below
        self._environment = {
            **os.environ,
            "STREAMER_CONFIG": str(folder / "none.yaml"),
            "STREAMER_KAFKA__BOOTSTRAP": bootstrap,
            "STREAMER_KAFKA__PREFIX": prefix,
            "STREAMER_KAFKA__GROUP_PREFIX": prefix.replace(".", "-"),
            "STREAMER_KAFKA__PARTITIONS": str(PARTITIONS),
            "STREAMER_STATE_DIR": str(folder / "state"),
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        self._folder = folder
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, slot: int = 0, *, crash_at: str = "") -> None:
        """Start it; ``crash_at`` is a point of ``process.crash_points``."""
        self._starts += 1
        with self._log_path.open("ab") as log:
            command = [sys.executable, "-m", "streamer", "aggregate", "--lane", LANE]
            self._process = subprocess.Popen(
                [*command, "--slot", str(slot)],
                env={**self._environment, "STREAMER_CRASH_AT": crash_at},
                cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def _log_path(self) -> Path:
        return self._folder / f"{self._name}-{self._starts}.log"

    def log(self) -> str:
        """All logs so far."""
        return "".join(
            path.read_text() for path in sorted(self._folder.glob(f"{self._name}-*.log"))
        )

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)

    def wait_for(self, event: str, timeout_s: float = 20) -> None:
        """Wait until it has logged ``event`` since its last start."""
        until = time.monotonic() + timeout_s
        while f'"event":"{event}"' not in self._log_path.read_text():
            assert time.monotonic() < until, f"no {event}: {self.log()}"
            time.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM once it has started; the exit code."""
        assert self._process is not None
        self.wait_for("started")
        self._process.terminate()
        return self._process.wait(20)


@contextmanager
def running(process: AggregateProcess) -> Iterator[AggregateProcess]:
    """Kill it at the end, whatever happens."""
    try:
        yield process
    finally:
        process.kill()


class ResultWriter:
    """Writes results and entries as worker, route and SDK do.

    Args:
        bootstrap: of the broker.
        prefix: of the topics.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._names = TopicNames(prefix)
        self._plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}writer",
             "retry.backoff.ms": 5, "linger.ms": 1}
        )  # fmt: skip
        self._producer.init_transactions(20)

    def results(self, records: Iterable[ResultRecord], *, abort: bool = False) -> None:
        """One transaction."""
        self._producer.begin_transaction()
        for record in records:
            assert record.job_id is not None
            key = job_key(LANE, record.tenant, record.job_id)
            self._producer.produce(
                self._names.results(LANE), wire.encode_result(record), key,
                partition=partition_of(key, PARTITIONS),
            )  # fmt: skip
        self._producer.flush(20)
        if abort:
            self._producer.abort_transaction(20)
        else:
            self._producer.commit_transaction(20)

    def entries(self, *entries: JobEntry) -> None:
        """Without a transaction, as SDK and CLI do."""
        for entry in entries:
            self._plain.produce(
                self._names.jobs(LANE), wire.encode_job(entry),
                job_entry_key(LANE, entry.tenant, entry.job_id, entry.kind),
                partition=partition_of(job_key(LANE, entry.tenant, entry.job_id), PARTITIONS),
            )  # fmt: skip
        assert self._plain.flush(20) == 0


def read_outputs(
    bootstrap: str, prefix: str, *, completions: int, timeout_s: float = 30.0
) -> dict[str, list[OutputRun | Completion]]:
    """Committed outputs by job in log order, once there are so many completions."""
    messages = read_until(
        bootstrap,
        TopicNames(prefix).outputs(LANE),
        lambda found: (
            sum(dict(m.headers())["streamer-kind"] == b"completion" for m in found) >= completions
        ),
        timeout_s=timeout_s,
    )
    found: dict[str, list[OutputRun | Completion]] = {}
    for message in messages:
        output = wire.decode_output(message.value())
        assert output.job_id is not None
        found.setdefault(output.job_id, []).append(output)
    return found


def released(outputs: Iterable[OutputRun | Completion]) -> list[int]:
    """Indices of the rows, in log order."""
    return [
        int(index) for each in outputs if isinstance(each, OutputRun) for index in each.items.index
    ]
