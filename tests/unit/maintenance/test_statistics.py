"""Distinct counts: exact where possible, as Apache DataSketches has them, stored as specified."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path

import datasketches
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.table import StaticTable
from pyiceberg.table.puffin import PuffinFile

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidSchemaError, NoSuchSnapshotError
from lakehouse.maintenance.column_sketches import ThetaSketch, compute_statistics, distinct_counts
from lakehouse.spec.metadata.table_metadata import THETA_SKETCH


def library_sketch(values) -> datasketches.update_theta_sketch:
    sketch = datasketches.update_theta_sketch(12)
    for value in values:
        sketch.update(value)
    return sketch


def our_sketch(values: list[bytes]) -> ThetaSketch:
    sketch = ThetaSketch()
    for start in range(0, len(values), 777):
        sketch.add(pa.array(values[start : start + 777], pa.binary()))
    return sketch


@pytest.mark.parametrize("count", [0, 1, 2, 500, 4096])
def test_up_to_its_size_a_sketch_is_exact_and_byte_for_byte_the_librarys(count):
    ours = our_sketch([f"value {number}".encode() for number in range(count)] * 2)
    assert ours.estimate == count
    assert (
        ours.to_bytes()
        == library_sketch(f"value {number}" for number in range(count)).compact().serialize()
    )
    longs = our_sketch([struct.pack("<q", number * 7 - 1000) for number in range(count)])
    assert (
        longs.to_bytes()
        == library_sketch(number * 7 - 1000 for number in range(count)).compact().serialize()
    )


@pytest.mark.parametrize("count", [4097, 20_000, 200_000])
def test_beyond_its_size_it_estimates_and_unites_with_the_librarys(count):
    ours = our_sketch([f"value {number}".encode() for number in range(count)])
    assert ours.estimate == pytest.approx(count, rel=0.05)
    read = datasketches.compact_theta_sketch.deserialize(ours.to_bytes())
    assert read.get_estimate() == pytest.approx(ours.estimate, abs=1)
    union = datasketches.theta_union(12)
    union.update(read)
    union.update(library_sketch(f"value {number}" for number in range(count)).compact())
    assert union.get_result().get_estimate() == pytest.approx(read.get_estimate()), (
        "the same values, hashed alike"
    )
    union.update(library_sketch(f"other {number}" for number in range(count)).compact())
    assert union.get_result().get_estimate() == pytest.approx(2 * count, rel=0.05)


def test_nulls_and_empty_values_do_not_count():
    sketch = ThetaSketch()
    sketch.add(pa.array([None, b"", b"a", None, b"a"], pa.binary()))
    assert sketch.estimate == 1


EVERY_TYPE = {
    "flag": ([True, False, None, True], 2),
    "small": (pa.array([1, 2, 2, None], pa.int32()), 2),
    "large": ([10**12, -5, 0, 0], 3),
    "real": ([0.5, -1.0, 0.5, None], 2),
    "day": ([dt.date(1960, 1, 1), dt.date(2026, 6, 1), None, dt.date(1960, 1, 1)], 2),
    "clock": ([dt.time(1, 2, 3, 4), dt.time(23), dt.time(23), None], 2),
    "moment": (
        pa.array([-3_600_000_000, 1_780_000_000_000_000, None, None], pa.timestamp("us")),
        2,
    ),
    "instant": (pa.array([0, 1, 1, 5], pa.timestamp("us", tz="UTC")), 3),
    "price": ([Decimal("1.50"), Decimal("-1.50"), Decimal("1.5"), None], 2),
    "word": (["a", "b", "b", "ü"], 3),
    "token": (
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"\x00" * 16, b"\xff" * 16, None, b"\xff" * 16], pa.binary(16))
        ),
        2,
    ),
    "digest": (pa.array([b"abc", b"abd", b"abc", None], pa.binary(3)), 2),
    "raw": ([b"\x00", b"\xff", b"\xff", b"\x00\x01"], 3),
    "all_null": (pa.array([None] * 4, pa.string()), 0),
    "nested": ([{"x": 1}] * 4, None),
}


@pytest.fixture
def table(tmp_path):
    rows = pa.table({name: values for name, (values, _) in EVERY_TYPE.items()})
    table = lh.load_catalog(f"file://{tmp_path}/warehouse").create_table("raw.every", rows.schema)
    table.append(rows.slice(0, 3))
    table.append(rows.slice(2))
    return table


def test_every_type_is_counted_in_the_bytes_of_the_spec(table):
    result = table.compute_statistics()
    assert result.distinct == {
        name: count for name, (_, count) in EVERY_TYPE.items() if count is not None
    }
    version = table.metadata
    assert distinct_counts(version) == dict(result.distinct)
    puffin = PuffinFile(table.storage.read(result.location))
    rows = table.scan().to_arrow()
    for blob in puffin.footer.blobs:
        assert (blob.type, blob.snapshot_id) == (THETA_SKETCH, version.current_snapshot_id)
        field = table.schema().find_field(blob.fields[0])
        sketch = datasketches.compact_theta_sketch.deserialize(puffin.get_blob_payload(blob))
        assert sketch.get_estimate() == float(blob.properties["ndv"]) == result.distinct[field.name]
        expected = {
            to_bytes(field.field_type, value)
            for value in rows[field.name].to_pylist()
            if value is not None
        }
        assert puffin.get_blob_payload(blob) == our_sketch(sorted(expected)).to_bytes(), field.name


def test_the_metadata_names_the_file_as_the_spec_asks(table):
    result = compute_statistics(table.catalog, table.identifier, columns=["word", "large"])
    (statistics,) = StaticTable.from_metadata(table.refresh().metadata_location).metadata.statistics
    data = table.storage.read(result.location)
    assert (statistics.snapshot_id, statistics.statistics_path) == (
        table.metadata.current_snapshot_id,
        result.location,
    )
    assert statistics.file_size_in_bytes == len(data) == result.bytes
    footer = data[-statistics.file_footer_size_in_bytes :]
    assert footer[:4] == footer[-4:] == b"PFA1"
    assert int.from_bytes(footer[-12:-8], "little") == len(footer) - 16
    assert [(blob.fields, blob.properties["ndv"]) for blob in statistics.blob_metadata] == [
        ([10], "3"),
        ([3], "3"),
    ]


def test_deleted_rows_and_later_snapshots_do_not_count(table):
    first = table.current_snapshot().snapshot_id
    table.delete(where="word = 'a'")
    assert compute_statistics(table.catalog, table.identifier, columns=["word"]).distinct == {
        "word": 2
    }
    before = compute_statistics(
        table.catalog, table.identifier, columns=["word"], snapshot_id=first
    )
    assert before.distinct == {"word": 3}
    metadata = table.refresh().metadata
    assert distinct_counts(metadata) == {"word": 2}
    assert distinct_counts(metadata, first) == {"word": 3}


def test_counting_again_replaces_and_expiry_removes_the_file(table):
    first = compute_statistics(table.catalog, table.identifier, columns=["word"])
    second = compute_statistics(table.catalog, table.identifier, columns=["word", "flag"])
    table.refresh()
    assert [one["statistics-path"] for one in table.metadata.statistics] == [second.location]
    assert Path(first.location.removeprefix("file://")).exists(), "earlier metadata names it"
    table.append(table.scan().to_arrow())
    table.expire_snapshots(older_than=dt.datetime.now(dt.UTC) + dt.timedelta(days=1), retain_last=1)
    assert table.metadata.statistics == ()
    assert not Path(second.location.removeprefix("file://")).exists()


def test_what_cannot_be_counted_is_an_error_and_leaves_nothing(table, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        InvalidSchemaError, match=r"raw\.every: nested, nope cannot be counted; .*word"
    ):
        compute_statistics(table.catalog, table.identifier, columns=["word", "nested", "nope"])
    with pytest.raises(NoSuchSnapshotError):
        compute_statistics(table.catalog, table.identifier, snapshot_id=7)
    assert sorted(tmp_path.rglob("*")) == before
    empty = lh.load_catalog(f"file://{tmp_path}/warehouse").create_table(
        "raw.empty", pa.schema([("a", pa.int64())])
    )
    with pytest.raises(InvalidInputError, match="no snapshot"):
        compute_statistics(empty.catalog, empty.identifier)
