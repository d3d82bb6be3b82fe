"""Digests that let anybody check who an answer belongs to and that an output is complete.

input digest     BLAKE2b-128 of (task, input as received, params), made by route.
running digest   d0 = zeros, d(i+1) = BLAKE2b-128(d(i) | index | status | input digest | output
                 bytes before any text encoding).
"""

from __future__ import annotations

import hashlib
import struct

START = bytes(16)
_HEAD = struct.Struct("<16sqB")


def input_digest(task: str, input_canonical: bytes, params: str) -> bytes:
    """16 bytes that name (task, input, params); parts are length-prefixed, so none can blur."""
    parts = (task.encode(), input_canonical, params.encode())
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(struct.pack("<q", len(part)))
        hasher.update(part)
    return hasher.digest()


def running_digest(
    before: bytes, index: int, status: int, item_digest: bytes, output: bytes | memoryview
) -> bytes:
    """The digest after the row ``index``; ``output`` is empty for a row without an answer."""
    hasher = hashlib.blake2b(_HEAD.pack(before, index, status), digest_size=16)
    hasher.update(item_digest)
    hasher.update(output)
    return hasher.digest()
