"""Framing of Avro bytes, and the guards around decoding what others wrote.

Written is the Confluent prefix form: byte 0, schema id (4 bytes, big endian), body. Read are that
and the header form (``__value_schema_id`` = byte 1 and a 16-byte GUID, body untouched). Id and GUID
come from the SHA-256 of the schema's parsing canonical form, so the table needs no registry.

A decoder knows the released versions of its own record and nothing else; it looks at the size
before decoding and insists that the body is consumed to its end, because bytes written under one
schema often decode under another.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.schema import to_parsing_canonical_form

from streamer.errors import Undecodable

ID_HEADER: Final = "__value_schema_id"
PREFIX_BYTES: Final = 5
MAX_BYTES: Final = 4 * 1024 * 1024
_PREFIX = struct.Struct(">BI")

# What the reader raises on bytes that do not fit the schema (property tests hold it to these).
_BAD_BYTES = (
    EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError,
    RecursionError, struct.error, SchemaResolutionError,
)  # fmt: skip


def fingerprint(schema: Mapping[str, Any]) -> bytes:
    """SHA-256 of the parsing canonical form: docs, defaults and order of keys do not count."""
    return hashlib.sha256(to_parsing_canonical_form(dict(schema)).encode()).digest()


def schema_id(schema: Mapping[str, Any]) -> int:
    """The id of the prefix form: the first 31 bits of the fingerprint."""
    return int.from_bytes(fingerprint(schema)[:4], "big") & 0x7FFFFFFF


def schema_guid(schema: Mapping[str, Any]) -> bytes:
    """The GUID of the header form: the first 16 bytes of the fingerprint."""
    return fingerprint(schema)[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Bytes to and from plain dictionaries for one record.

    Attributes:
        name: of the record, for messages.
        current: parsed schema that is written, and read into.
        writers: id -> parsed schema of each version that may arrive.
        ids_by_guid: GUID -> id, for the header form.
        prefix: the five bytes put before each body.
    """

    name: str
    current: Any
    current_id: int
    writers: Mapping[int, Any]
    ids_by_guid: Mapping[bytes, int]
    prefix: bytes

    def encode(self, datum: Mapping[str, Any]) -> bytes:
        """Prefix and body of one record."""
        out = BytesIO()
        out.write(self.prefix)
        schemaless_writer(out, self.current, datum)
        return out.getvalue()

    def decode(
        self,
        value: bytes | None,
        headers: Mapping[str, bytes] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        broken_text: str = "strict",
    ) -> dict[str, Any]:
        """The record in ``value``, with the fields of the current schema.

        Args:
            value: as it came.
            headers: looked at for the header form only.
            max_bytes: a longer value is refused unseen.
            broken_text: ``strict`` refuses a text that is not UTF-8, ``replace`` mends it.

        Raises:
            Undecodable: ``unknown_schema``, ``corrupt_record`` or (all else being fine so far)
                ``invalid_utf8``.
        """
        if not value:
            raise Undecodable("corrupt_record", f"{self.name}: the record has no value")
        if len(value) > max_bytes:
            raise Undecodable(
                "corrupt_record", f"{self.name}: {len(value)} bytes, the limit is {max_bytes}"
            )
        written_by, start = self._writer_of(value, headers or {})
        stream = BytesIO(value)
        stream.seek(start)
        same = written_by == self.current_id
        try:
            datum = schemaless_reader(
                stream,
                self.writers[written_by],
                None if same else self.current,
                handle_unicode_errors=broken_text,
            )
        except UnicodeDecodeError:
            raise Undecodable("invalid_utf8", f"{self.name}: a text is not UTF-8") from None
        except _BAD_BYTES as error:
            raise Undecodable(
                "corrupt_record",
                f"{self.name}: the bytes do not fit the schema ({type(error).__name__})",
            ) from None
        left = len(value) - stream.tell()
        if left:
            raise Undecodable("corrupt_record", f"{self.name}: {left} bytes are left over")
        if not isinstance(datum, dict):
            raise AssertionError(f"{self.name}: schema is not a record")
        return datum

    def _writer_of(self, value: bytes, headers: Mapping[str, bytes]) -> tuple[int, int]:
        """Id of the writing schema and where the body starts."""
        guid = headers.get(ID_HEADER)
        if guid is not None and guid[:1] == b"\x01":
            found = self.ids_by_guid.get(guid[1:])
            if found is None:
                raise Undecodable("unknown_schema", f"{self.name}: unknown GUID in {ID_HEADER}")
            return found, 0
        if value[0] != 0:
            raise Undecodable("unknown_schema", f"{self.name}: the first byte is not 0")
        if len(value) < PREFIX_BYTES:
            raise Undecodable("corrupt_record", f"{self.name}: only {len(value)} bytes")
        number = _PREFIX.unpack_from(value)[1]
        if number not in self.writers:
            raise Undecodable(
                "unknown_schema", f"{self.name}: schema id {number} is not one of this record"
            )
        return number, PREFIX_BYTES


def codec_of(name: str, current: Mapping[str, Any], released: Sequence[Mapping[str, Any]]) -> Codec:
    """The codec of a record from its current schema and all released versions."""
    versions = [*released, current]
    writers = {schema_id(version): parse_schema(dict(version)) for version in versions}
    number = schema_id(current)
    return Codec(
        name=name,
        current=writers[number],
        current_id=number,
        writers=writers,
        ids_by_guid={schema_guid(version): schema_id(version) for version in versions},
        prefix=_PREFIX.pack(0, number),
    )
