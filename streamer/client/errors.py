"""What the SDK raises, named by what the caller does about it.

StreamerError
├── InputRefused       the items or the file cannot be submitted: mend them (exit code 2)
├── JobConflict        the job id is taken by other input: choose another id
├── JobUnknown         no such job in this lane and tenant
├── OutputsGone        rows were deleted by retention before they were read
├── OutputsBroken      the output topic breaks the promise: run ``streamer audit``
├── WaitTimeout        the time given is over; the job goes on, ask again
└── RequestFailed      a single request was answered with an error; ``code`` says which
"""

from __future__ import annotations

from streamer.errors import StreamerError


class InputRefused(StreamerError):
    """Nothing was sent; the message names the lines or the field to mend."""


class JobConflict(StreamerError):
    """A job id is single-use, and this one belongs to other input."""


class JobUnknown(StreamerError):
    """Neither descriptor nor state nor output of the job is in the topics."""


class OutputsGone(StreamerError):
    """The first rows asked for are no longer in the output topic."""


class OutputsBroken(StreamerError):
    """A row is missing in the middle of a job's output, which must never happen."""


class WaitTimeout(StreamerError):
    """The wait ended, not the work."""


class RequestFailed(StreamerError):
    """The answer of one request is an error.

    Args:
        code: an error code of ``event.codes``.
        message: the service's own words.
        retryable: whether the same request may succeed later.
        custom_id: which request.
        position: place of the text in the call, e.g. in ``embed(texts)``.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        custom_id: str = "",
        position: int = 0,
    ) -> None:
        super().__init__(f"text {position}: {code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.custom_id = custom_id
        self.position = position
