"""From the model's numbers to the bytes a caller asked for.

Embeddings are shortened to ``dimensions`` in float32 before they are encoded, and brought back to
unit length where the parameters ask for it (the engine has done so for whole ones). Scores always
travel as float32, since their caller reads them as numbers.

| encoding_format   | dtype | a text's answer                                                     |
|-------------------|-------|---------------------------------------------------------------------|
| float, base64     | f32   | as computed (the two differ only in how JSON shows them)            |
| f16               | f16   | rounded to half precision                                           |
| int8              | i8    | divided by its own largest magnitude, times 127, rounded: direction |
|                   |       | and ranking are kept, the length is not                             |
| binary            | u1    | one bit a value, set where it is > 0, packed, first value in the    |
|                   |       | highest bit; a last byte is filled up with zeros                    |
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {"float": "f32", "base64": "f32", "f16": "f16", "int8": "i8", "binary": "u1"}
_NORM_MIN = 1e-12


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a record's parameters ask of each row.

    Attributes:
        dimensions: values to keep of an embedding; 0 = all.
        normalize: whether embeddings have unit length, so that a shortened one must get it back.
    """

    dimensions: int
    normalize: bool


@lru_cache(maxsize=1_024)
def row_shape_of(params: str) -> RowShape:
    """Read the canonical JSON of a record's effective parameters."""
    fields = json.loads(params) if params else {}
    return RowShape(
        dimensions=int(fields.get("dimensions") or 0), normalize=fields.get("normalize") is True
    )


def shaped(values: NDArray[np.float32], shape: RowShape, kind: str) -> NDArray[np.float32]:
    """Shorten embeddings and normalise them again; everything else passes unchanged.

    Args:
        values: float32 [texts, ...].
        shape: what the record's parameters ask.
        kind: ``embedding``, ``scores``, ``labels``.

    Returns:
        float32 [texts, ...]; a zero vector stays a zero vector.
    """
    if kind != "embedding" or values.ndim != 2:
        return values
    if not 0 < shape.dimensions < values.shape[1]:
        return values
    values = values[:, : shape.dimensions]
    if shape.normalize and len(values):
        norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
        values = (values / np.maximum(norms, _NORM_MIN)[:, None]).astype(np.float32)
    return values


def encoded(values: NDArray[np.float32], encoding: str, kind: str) -> tuple[str, NDArray[Any]]:
    """Encode rows that are finite.

    Args:
        values: float32 [texts, ...].
        encoding: one of ``codes.ENCODINGS``; counts for embeddings only.
        kind: ``embedding``, ``scores``, ``labels``.

    Returns:
        The dtype word of ``records.Outputs`` and the array [texts, ...] whose bytes travel. Half
        precision may overflow to infinity: the caller checks :func:`finite_rows` again.
    """
    dtype = _DTYPES.get(encoding, "f32") if kind == "embedding" else "f32"
    if dtype == "f16":
        with np.errstate(over="ignore"):
            return dtype, values.astype("<f2")
    if dtype == "i8":
        flat = _flat(values)
        peaks = np.abs(flat).max(axis=1, initial=0.0, keepdims=True)
        scaled = np.rint(flat / np.maximum(peaks, np.finfo(np.float32).tiny) * 127.0)
        return dtype, np.clip(scaled, -127, 127).astype(np.int8).reshape(values.shape)
    if dtype == "u1":
        return dtype, np.packbits(_flat(values) > 0, axis=1)
    return dtype, np.ascontiguousarray(values, dtype="<f4")


def finite_rows(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether all values of a text are finite: bool [texts]."""
    if values.dtype.kind != "f":
        return np.ones(len(values), dtype=np.bool_)
    finite: NDArray[np.bool_] = np.isfinite(_flat(values)).all(axis=1)
    return finite


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """One line a text; without texts numpy cannot guess how long a line is."""
    return values.reshape(len(values), math.prod(values.shape[1:]))
