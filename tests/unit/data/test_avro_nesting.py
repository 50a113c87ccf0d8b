"""Avro data files whose schemas nest deeply: their rows, or an error that names the file."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import fastavro
import pytest

from lakehouse.data.reading.avro_reader import AvroFile
from lakehouse.errors import CorruptMetadataError, LakehouseError, UnsupportedFeatureError
from lakehouse.spec.manifests.avro_container import DECODING_ERRORS


def nested(levels: int, leaf: object = "long") -> Any:
    for level in range(levels):
        field = {"name": "f", "type": leaf, "field-id": level + 1}
        leaf = {"type": "record", "name": f"r{level}", "fields": [field]}
    return leaf


def written(schema: Any, record: bytes) -> bytes:
    """A file of one record, whose schema no writer looks at."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    text = json.dumps(schema).encode()
    sys.setrecursionlimit(limit)
    head = io.BytesIO()
    metadata = {"avro.schema": text, "avro.codec": b"null"}
    fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, metadata)
    sync = b"S" * 16
    return b"Obj\x01" + head.getvalue() + sync + bytes([2, 2 * len(record)]) + record + sync


def outcome(data: bytes) -> object:
    try:
        return [batch.num_rows for batch in AvroFile("x.avro", data).batches(10)]
    except LakehouseError as error:
        return type(error) if "x.avro" in error.message else error


@pytest.mark.parametrize("levels", [2, 100, *range(240, 420, 30), 3_000])
def test_a_schema_of_any_depth_is_read_or_refused(levels: int) -> None:
    found = outcome(written(nested(levels), b"\x02"))
    assert found in ([1], CorruptMetadataError)
    assert levels > 240 or found == [1]


def test_what_fastavro_raises_at_the_end_of_the_stack_is_damage(monkeypatch) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    assert RecursionError in DECODING_ERRORS
    data = written(nested(2), b"\x02")
    for name in ("parse_schema", "schemaless_reader"):
        with monkeypatch.context() as patch:
            patch.setattr(fastavro, name, too_deep)
            with pytest.raises(CorruptMetadataError, match=r"x\.avro is not readable Avro"):
                list(AvroFile("x.avro", data).batches(10))


def test_a_record_that_contains_itself_is_refused() -> None:
    """A linked list, which Avro has and no Iceberg type stands for; twice one type is none."""
    link = {"name": "next", "type": ["null", "n"], "field-id": 1}
    assert outcome(written({"type": "record", "name": "n", "fields": [link]}, b"\x00")) is (
        UnsupportedFeatureError
    )
    point = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "long"}]}
    twice = [{"name": "a", "type": point}, {"name": "b", "type": "p"}]
    data = written({"type": "record", "name": "n", "fields": twice}, b"\x02\x04")
    assert outcome(data) == [1]
