"""What a lane's core was given, and how all of it is taken back and read again.

Wraps core and source for the loop: the core never gets a partition twice without giving it back,
and after a failure nothing is given out before the committed offsets were read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from streamer.batch.kafka_source import KafkaSource
from streamer.clock import Clock
from streamer.errors import BrokerUnreachable, StreamerError
from streamer.event.lane import Assignment, LaneCore, Now, TopicPartition
from streamer.process.lane_hooks import LaneHooks

_RETRY_NS: Final = 500_000_000
_QUICK_FAILURES: Final = 2
_FAILURES_MAX: Final = 30  # in a row: about 20 s of pauses, then the process starts anew
_log = logging.getLogger(__name__)


class Custody:
    """Partitions on loan to a core; used from the owner thread.

    Args:
        name: of the loop, for logs.
        core: borrows partitions.
        source: owns them.
        hooks: hear of assignments before the core.
        clock: source of time.
    """

    def __init__(
        self, *, name: str, core: LaneCore, source: KafkaSource, hooks: LaneHooks, clock: Clock
    ) -> None:
        self._name = name
        self._core = core
        self._source = source
        self._hooks = hooks
        self._clock = clock
        self._lent: set[TopicPartition] = set()
        self._failures = 0
        self.rewind_at_ns: int | None = None  # not None: nothing may be emitted or delivered

    @property
    def rewinding(self) -> bool:
        """Whether everything was taken back and is not yet read again."""
        return self.rewind_at_ns is not None

    def lend(self, assignments: Sequence[Assignment]) -> None:
        """Give partitions to the core, after taking back what it had of them."""
        if not assignments:
            return
        partitions = [assignment.at for assignment in assignments]
        self.take_back(partitions)
        now = self._now()
        self._hooks.assigned(assignments, now)
        self._core.assigned(assignments, now)
        self._lent.update(partitions)

    def take_back(self, partitions: Collection[TopicPartition]) -> None:
        """The core forgets those of ``partitions`` that it has."""
        gone = self._lent.intersection(partitions)
        if gone:
            self._core.revoked(gone, self._now())
            self._lent -= gone

    def succeeded(self) -> None:
        """A transaction committed: earlier failures are over."""
        self._failures = 0

    def give_up(self, reason: str) -> None:
        """Take everything back; read it again after a pause that grows with failures in a row.

        Raises:
            StreamerError: it failed too often in a row.
        """
        self._failures += 1
        if self._failures > _FAILURES_MAX:
            raise StreamerError(f"{self._name}: {self._failures} failures in a row: {reason}")
        _log.warning("giving up what is held", extra={"loop": self._name, "reason": reason})
        self.take_back(self._lent.copy())
        pause_ms = 0 if self._failures <= _QUICK_FAILURES else min(self._failures * 50, 1_000)
        self.rewind_at_ns = self._clock.monotonic_ns() + pause_ms * 1_000_000

    def rewind(self, now: Now) -> int | None:
        """Read the committed offsets and lend everything again, when it is time.

        Returns the number of partitions, None when it was not time or nobody answered.
        """
        if self.rewind_at_ns is None or now.mono_ns < self.rewind_at_ns:
            return None
        try:
            assignments = self._source.rewind(self._source.owned())
        except BrokerUnreachable as error:
            _log.warning("cannot rewind yet", extra={"loop": self._name, "error": str(error)})
            self.rewind_at_ns = self._clock.monotonic_ns() + _RETRY_NS
            return None
        self.rewind_at_ns = None
        self.lend(assignments)
        return len(assignments)

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ns(), self._clock.wall_ms())
