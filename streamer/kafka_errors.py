"""The one translator of Kafka client errors: codes in, remedies (``errors.py``) out.

Nobody else looks at error codes. Whatever this file does not know counts as the worse case:
an unknown outcome for a transaction, a fatal error for a consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streamer.errors import (
    BrokerUnreachable,
    ConfigurationError,
    ProducerFenced,
    StreamerError,
    TransactionAborted,
    TransactionUnknown,
)

# The client reports a newer producer and our own transaction timeout alike (no KIP-588).
_FENCED_CODES: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)
_UNREADABLE_POSITION: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
)
_MISSING_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside an exception of the client."""
    error: KafkaError = exception.args[0]
    return error


@contextmanager
def plain_errors() -> Iterator[None]:
    """Around calls that serve callbacks: a fatal error always comes out as KafkaException.

    The binding raises a fatal error from inside a callback; when another callback is served after
    that in the same call, it surfaces as a SystemError, caused by the real one or by nothing. Then
    the code is ``_FATAL`` and the next call on the client tells the real one.
    """
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KafkaException):
            cause = cause.__cause__ or cause.__context__
        raise cause or KafkaException(KafkaError(KafkaError._FATAL)) from error


def is_unnamed(exception: KafkaException) -> bool:
    """Whether only that the client is dead is known, not why."""
    return error_of(exception).code() == KafkaError._FATAL


def is_resumable(exception: KafkaException) -> bool:
    """Whether the same init, commit or abort call may be made again and goes on where it was."""
    error = error_of(exception)
    return bool(error.retriable()) and not error.fatal() and not error.txn_requires_abort()


def before_commit(exception: KafkaException) -> StreamerError:
    """An error of begin, produce, flush or send_offsets: nothing is committed.

    Source: a timed-out send_offsets is not resumable; it becomes abortable.
    """
    error = error_of(exception)
    if error.code() in _FORBIDDEN:
        return ConfigurationError(f"the cluster refuses this client: {error.name()}")
    if error.code() in _FENCED_CODES:
        return ProducerFenced(error.name())
    return TransactionAborted(error.name())


def during_commit(exception: KafkaException) -> StreamerError:
    """An error of the commit call: certainly not committed only when the client demands an abort.

    Source: librdkafka#4558 and #4697, where both lies were seen; the committed offsets decide.
    """
    error = error_of(exception)
    if error.code() in _FENCED_CODES:
        return ProducerFenced(error.name())
    if error.txn_requires_abort():
        return TransactionAborted(error.name())
    return TransactionUnknown(error.name())


def during_init(exception: KafkaException) -> StreamerError | None:
    """An error while a producer is initialised; None = build it anew and try again."""
    error = error_of(exception)
    if error.code() in _FORBIDDEN:
        return ConfigurationError(f"the cluster refuses this client: {error.name()}")
    if error.code() in _FENCED_CODES:
        return ProducerFenced(error.name())
    return None


def when_asking(exception: KafkaException, what: str) -> StreamerError:
    """An error of a question to the brokers (metadata, watermarks, committed offsets)."""
    error = error_of(exception)
    if error.code() in _FORBIDDEN:
        return ConfigurationError(f"the cluster refuses to tell {what}: {error.name()}")
    if error.code() in _MISSING_TOPIC:
        return ConfigurationError(f"cannot read {what}: {error.name()}")
    return BrokerUnreachable(f"no answer about {what}: {error.name()}")


class ConsumerTrouble(Enum):
    """What an error event of a consumer means to its owner."""

    PASSING = "passing"  # the client retries by itself
    MISSING_TOPIC = "missing_topic"  # may appear later
    NO_POSITION = "no_position"  # this partition cannot be read where we want to
    EVICTED = "evicted"  # silent for too long: the lost callback follows
    FATAL = "fatal"  # this consumer object is dead


def consumer_trouble(error: KafkaError) -> ConsumerTrouble:
    """Judge an error event that came out of ``poll`` or ``consume``."""
    code = error.code()
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return ConsumerTrouble.EVICTED
    if code in _UNREADABLE_POSITION:
        return ConsumerTrouble.NO_POSITION
    if code in _MISSING_TOPIC:
        return ConsumerTrouble.MISSING_TOPIC
    if error.fatal() or code in _FORBIDDEN or code == KafkaError.FENCED_INSTANCE_ID:
        return ConsumerTrouble.FATAL
    return ConsumerTrouble.PASSING


def is_end(error: KafkaError) -> bool:
    """Whether an event only says that the end of a partition was reached."""
    return error.code() == KafkaError._PARTITION_EOF
