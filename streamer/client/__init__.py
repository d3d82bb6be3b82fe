"""The SDK: submit jobs, read their results in order, ask single questions."""

from streamer.client.client import Client
from streamer.client.errors import (
    InputRefused,
    JobConflict,
    JobUnknown,
    OutputsBroken,
    OutputsGone,
    RequestFailed,
    WaitTimeout,
)
from streamer.client.job import Job, Progress
from streamer.client.result_item import ItemFailure, ResultItem

__all__ = [
    "Client", "InputRefused", "ItemFailure", "Job", "JobConflict", "JobUnknown", "OutputsBroken",
    "OutputsGone", "Progress", "RequestFailed", "ResultItem", "WaitTimeout",
]  # fmt: skip
