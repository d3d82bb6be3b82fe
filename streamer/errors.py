"""What can go wrong, named by what to do about it.

    StreamerError
    ├── ConfigurationError      the settings or the topics are wrong: fix them (exit code 3)
    ├── BrokerUnreachable       nothing answers at the bootstrap address (exit code 4)
    ├── Undecodable             bytes that carry no readable (job, index): dead letter
    ├── ItemRejected            one item is refused: errored result with its code
    ├── TransactionAborted      nothing was committed: rewind to the committed offsets, go on
    ├── TransactionUnknown      nobody can say: rebuild, read committed offsets, go on from there
    ├── ProducerFenced          another producer holds our id: rebuild once, then stop
    └── EngineFailure           the device or model failed, by failure class

A caller reads the class and never the message.
"""

from __future__ import annotations


class StreamerError(Exception):
    """Base of all errors that streamer raises on purpose."""


class ConfigurationError(StreamerError):
    """Settings, topics or model files are wrong; the message says which and how to mend it."""


class BrokerUnreachable(StreamerError):
    """No broker answered in time; the message names the address."""


class Undecodable(StreamerError):
    """The bytes of a record cannot be read as far as (job, index).

    Args:
        code: an error code of ``event.codes``.
        message: what is wrong, without any payload text.
        tenant, job_id: the job it speaks of, when that much was readable; for the dead letter.
    """

    def __init__(
        self, code: str, message: str, *, tenant: str = "", job_id: str | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.tenant = tenant
        self.job_id = job_id


class ItemRejected(StreamerError):
    """One item is refused while its neighbours go on; becomes an errored result."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable


class TransactionAborted(StreamerError):
    """The transaction is certainly not committed."""


class TransactionUnknown(StreamerError):
    """The transaction may or may not be committed; the committed offsets tell."""


class ProducerFenced(StreamerError):
    """A newer producer holds the same transactional id."""


class EngineFailure(StreamerError):
    """A model run failed.

    Args:
        kind: ``item`` (this input), ``batch`` (some input of the batch, unknown which),
            ``transient`` (try again), ``sticky`` (the device is gone: restart the process),
            ``lost`` (the engine is gone, its tickets with it).
        code: an error code of ``event.codes``.
        message: what happened, without any payload text.
    """

    def __init__(self, kind: str, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.kind = kind
        self.code = code
        self.message = message
