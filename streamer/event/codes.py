"""The closed lists of words that travel: lanes, item states, job states, error codes, tasks."""

from __future__ import annotations

from typing import Final

LANES: Final = ("fast", "bulk")
TASKS: Final = ("embed", "classify", "score")

# Item states: positions are the byte values of the ``status`` column. A reader takes any
# unknown byte for ``errored``, which is safe to act on.
STATUSES: Final = ("succeeded", "errored", "expired", "cancelled")
SUCCEEDED: Final = 0
ERRORED: Final = 1
EXPIRED: Final = 2
CANCELLED: Final = 3

JOB_OPEN: Final = "open"
JOB_COMPLETED: Final = "completed"
JOB_EXPIRED: Final = "expired"
JOB_CANCELLED: Final = "cancelled"
JOB_STATES: Final = (JOB_OPEN, JOB_COMPLETED, JOB_EXPIRED, JOB_CANCELLED)

ERROR_CODES: Final = frozenset(
    {
        "unknown_model", "empty_input", "input_too_long", "invalid_json", "invalid_utf8",
        "invalid_type", "missing_field", "non_finite_number", "unknown_schema",
        "corrupt_record", "index_out_of_range", "repeated_index", "duplicate_custom_id",
        "job_closed", "expired", "cancelled", "over_capacity", "result_too_large",
        "out_of_memory", "non_finite_output", "model_error", "poison",
    }
)  # fmt: skip

ENCODINGS: Final = ("float", "base64", "f16", "int8", "binary")
FORMS: Final = ("json", "avro")

# Bits of the ``flags`` column.
FLAG_TRUNCATED: Final = 1
FLAG_LIST: Final = 2


def status_name(code: int) -> str:
    """The word for a byte of the ``status`` column; unknown bytes read as ``errored``."""
    return STATUSES[code] if 0 <= code < len(STATUSES) else STATUSES[ERRORED]
