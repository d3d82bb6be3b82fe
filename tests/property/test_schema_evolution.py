"""Every released version reads every other, and no schema invites a bomb."""

from __future__ import annotations

import copy
import json
import uuid
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from fastavro.utils import generate_many
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.errors import Undecodable
from streamer.event.avro import Codec, codec_of, schema_guid, schema_id
from streamer.event.file_schemas import NAMES, read_history, read_schema, schema_folder
from streamer.event.wire import decode_work, encode_job
from tests.support import records

README = (Path(__file__).parents[2] / "schemas" / "README.md").read_text()


def _parts(schema: Any, inside: tuple[str, ...] = ()) -> list[tuple[Any, tuple[str, ...]]]:
    """Every part of a schema with the names of the records around it."""
    found = [(schema, inside)]
    if isinstance(schema, list):
        for branch in schema:
            found += _parts(branch, inside)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind == "record":
            for part in schema["fields"]:
                found += _parts(part["type"], (*inside, schema["name"]))
        elif kind in ("array", "map"):
            found += _parts(schema["items" if kind == "array" else "values"], inside)
    return found


def _reader_writer_pairs() -> list[tuple[str, int, int]]:
    pairs = []
    for name in NAMES:
        versions = range(len(read_history(name)))
        pairs += [(name, writer, reader) for writer, reader in product(versions, versions)]
    return pairs


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_a_released_version(name: str) -> None:
    current = read_schema(name)

    assert schema_id(current) in {schema_id(version) for version in read_history(name)}


@pytest.mark.parametrize("name", NAMES)
def test_released_versions_are_those_of_the_table(name: str) -> None:
    for number, version in enumerate(read_history(name), start=1):
        guid = uuid.UUID(bytes=schema_guid(version))
        row = f"| `{name}` | {number} | {schema_id(version)} |"

        assert row in README
        assert str(guid) in README


def test_ids_are_all_different() -> None:
    ids = [schema_id(version) for name in NAMES for version in read_history(name)]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("name", "writer", "reader"), _reader_writer_pairs())
def test_each_version_reads_each_other(name: str, writer: int, reader: int) -> None:
    versions = read_history(name)
    ours = codec_of(name, versions[writer], versions)
    theirs = codec_of(name, versions[reader], versions)
    shared = {f["name"] for f in versions[writer]["fields"]}
    shared &= {f["name"] for f in versions[reader]["fields"]}

    for datum in generate_many(parse_schema(versions[writer]), 20):
        value = ours.encode(datum)  # type: ignore[arg-type]
        expected = ours.decode(value)
        read = theirs.decode(value)
        assert all(read[field] == expected[field] for field in shared)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_not_recursive_and_has_no_items_of_no_bytes(name: str) -> None:
    for part, inside in _parts(read_schema(name)):
        if isinstance(part, dict) and part["type"] == "array":
            items = part["items"]
            assert items not in ("null", {"type": "null"})
            assert not (isinstance(items, dict) and items.get("fields") == [])
        assert not (isinstance(part, str) and part in inside), f"{part} contains itself"
        if isinstance(part, list):
            assert sum(isinstance(branch, dict) and "fields" in branch for branch in part) < 2


def test_parts_of_one_name_are_the_same_everywhere() -> None:
    seen: dict[str, str] = {}
    for name in NAMES:
        for part, _ in _parts(read_schema(name)):
            if isinstance(part, dict) and part["type"] == "record":
                text = json.dumps(part)
                assert seen.setdefault(part["name"], text) == text


@pytest.mark.parametrize("name", NAMES)
def test_every_field_says_what_it_means(name: str) -> None:
    for part, _ in _parts(read_schema(name)):
        if isinstance(part, dict) and part["type"] == "record":
            assert part["doc"]
            assert all(field["doc"] for field in part["fields"])


def _next_version(schema: dict[str, Any]) -> dict[str, Any]:
    later = copy.deepcopy(schema)
    later["fields"].insert(
        1, {"name": "brand_new", "type": ["null", "string"], "default": None, "doc": "New."}
    )
    later["fields"] = [field for field in later["fields"] if field["name"] != "source"]
    return later


def _old_and_new() -> tuple[Codec, Codec]:
    old = read_schema("job")
    new = _next_version(old)
    return codec_of("job", old, [old, new]), codec_of("job", new, [old, new])


@settings(max_examples=30)
@given(entry=records.JOBS, added=st.none() | records.TEXT)
def test_a_field_may_come_and_another_may_go(entry: Any, added: str | None) -> None:
    old, new = _old_and_new()
    by_old = old.decode(encode_job(entry))

    read_by_new = new.decode(encode_job(entry))
    read_by_old = old.decode(new.encode({**by_old, "brand_new": added}))

    assert read_by_new == {
        **{key: value for key, value in by_old.items() if key != "source"},
        "brand_new": None,
    }
    assert read_by_old == {**by_old, "source": ""}


def test_the_header_form_is_read_too() -> None:
    old, _ = _old_and_new()
    datum = old.decode(old.encode({"lane": "bulk", "tenant": "t", "job_id": "j", "kind": "seen"}))
    body = old.encode(datum)[5:]
    guid = schema_guid(read_schema("job"))

    assert old.decode(body, {"__value_schema_id": b"\x01" + guid}) == datum
    with pytest.raises(Undecodable, match="unknown_schema"):
        old.decode(body, {"__value_schema_id": b"\x01" + bytes(16)})


@settings(max_examples=30)
@given(entry=records.JOBS)
def test_a_record_of_another_schema_is_refused_though_known(entry: Any) -> None:
    with pytest.raises(Undecodable, match="unknown_schema"):
        decode_work(encode_job(entry))


def test_schemas_lie_where_the_project_looks() -> None:
    assert {path.stem for path in schema_folder().glob("*.avsc")} == set(NAMES)
