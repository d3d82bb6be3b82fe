"""Names of the topics, and which partition a key goes to (murmur2, as the Java client has it)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamer.errors import ConfigurationError

_SLUG = re.compile(r"[a-z0-9-]{1,40}\Z")
JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """All topic names under one prefix, e.g. ``streamer.``."""

    prefix: str = "streamer."

    def requests(self, lane: str) -> str:
        """Where users write."""
        return f"{self.prefix}requests.{lane}"

    def work(self, model: str, lane: str) -> str:
        """Tokenized groups for one model; partitions labelled by the bucket plan."""
        if not _SLUG.match(model):
            raise ConfigurationError(
                f"model name {model!r} cannot stand in a topic: use 1 to 40 of a-z, 0-9 and '-'"
            )
        return f"{self.prefix}work.{model}.{lane}"

    def results(self, lane: str) -> str:
        """Proposed rows of jobs, by job key."""
        return f"{self.prefix}results.{lane}"

    def replies(self, lane: str) -> str:
        """Terminal records of requests without a job."""
        return f"{self.prefix}replies.{lane}"

    def outputs(self, lane: str) -> str:
        """Ordered terminal rows of jobs."""
        return f"{self.prefix}outputs.{lane}"

    def job_state(self, lane: str) -> str:
        """What aggregate remembers, compacted."""
        return f"{self.prefix}job-state.{lane}"

    def jobs(self, lane: str) -> str:
        """What is said about jobs, compacted."""
        return f"{self.prefix}jobs.{lane}"

    def dead_letters(self, lane: str) -> str:
        """What could not become an answer."""
        return f"{self.prefix}dead-letters.{lane}"

    @property
    def plans(self) -> str:
        """Bucket plans, compacted, one partition."""
        return f"{self.prefix}plans"

    @property
    def events(self) -> str:
        """Facts for views."""
        return f"{self.prefix}events"


def job_key(lane: str, tenant: str, job_id: str) -> bytes:
    """The text ``lane/tenant/job``: key of results, outputs and job-state."""
    return f"{lane}/{tenant}/{job_id}".encode()


def job_entry_key(lane: str, tenant: str, job_id: str, kind: str) -> bytes:
    """The key text of a record in ``jobs``: the job key, '#' and the kind."""
    return job_key(lane, tenant, job_id) + b"#" + kind.encode()


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as a signed integer like Java's.

    Source: ``org.apache.kafka.common.utils.Utils.murmur2``; checked against its test vectors.
    """
    mask = 0xFFFFFFFF
    m, length = 0x5BD1E995, len(data)
    h = (0x9747B28C ^ length) & mask
    whole = length - length % 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & mask
        k ^= k >> 24
        h = ((h * m) & mask) ^ ((k * m) & mask)
    tail = data[whole:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    h ^= h >> 15
    return h - (1 << 32) if h >= 1 << 31 else h


def partition_of(key: bytes, count: int) -> int:
    """The partition of ``count`` that Java's default partitioner picks for ``key``."""
    return (murmur2(key) & 0x7FFFFFFF) % count
