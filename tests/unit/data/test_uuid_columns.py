"""Files with UUIDs: no bound and no statistic of theirs means something else in Java's order."""

from __future__ import annotations

import random
import struct
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh

RANDOM = random.Random(11)
SCHEMA = pa.schema(
    [("u", pa.uuid()), ("s", pa.struct([("u", pa.uuid())])), ("l", pa.list_(pa.uuid()))]
)


def uuids(values: list[uuid.UUID | None]) -> pa.Array:
    raw = [None if value is None else value.bytes for value in values]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16)))


def at_random(count: int) -> list[uuid.UUID]:
    return [uuid.UUID(int=RANDOM.getrandbits(128), version=4) for _ in range(count)]


def by_time(count: int) -> list[uuid.UUID]:
    """As version 7: milliseconds first."""
    start = 0x0198 << 112
    return [
        uuid.UUID(int=start + (n << 90) + (0b10 << 62) + RANDOM.getrandbits(62))
        for n in range(count)
    ]


def rows(values: list[uuid.UUID | None], nested: list[uuid.UUID | None]) -> pa.Table:
    inner = uuids(nested)
    struct_column = pa.StructArray.from_arrays([inner], fields=[pa.field("u", pa.uuid())])
    lists = pa.ListArray.from_arrays(pa.array(range(len(inner) + 1), pa.int32()), inner)
    return pa.table([uuids(values), struct_column, lists], schema=SCHEMA)


def signed(value: bytes) -> tuple[int, int]:
    return struct.unpack(">qq", value)


@pytest.fixture
def table(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    return catalog.create_table("db.t", SCHEMA, properties={"write.parquet.row-group-limit": "100"})


SHAPES = {
    "random": lambda: (at_random(350), False),
    "sorted": lambda: (sorted(at_random(350)), True),
    "time": lambda: (by_time(350), True),
    "random behind time": lambda: (by_time(150) + at_random(200), True),
    "with nulls": lambda: ([None, *at_random(98), None] * 2, False),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_and_bounds_hold_in_both_orders(table, shape):
    values, some = SHAPES[shape]()
    table.append(rows(values, values[::-1]))
    with_statistics = 0
    for file in table.inspect.files().to_pylist():
        path = file["file_path"].removeprefix("file://")
        lower, upper = dict(file["lower_bounds"] or ()), dict(file["upper_bounds"] or ())
        nulls = dict(file["null_value_counts"])
        parquet = pq.ParquetFile(path)
        for field_id, index, pick in (
            (1, 0, lambda t: t["u"]),
            (4, 1, lambda t: t["s"].flatten()[0]),
        ):
            everything = pick(pq.read_table(path)).to_pylist()
            assert nulls[field_id] == everything.count(None)
            for value in everything:
                for bound, side in ((lower.get(field_id), 1), (upper.get(field_id), -1)):
                    if bound is not None and value is not None:
                        pair = [bound, value.bytes][::side]
                        assert sorted(pair) == sorted(pair, key=signed) == pair
            for group in range(parquet.num_row_groups):
                statistics = parquet.metadata.row_group(group).column(index).statistics
                if statistics is None or not statistics.has_min_max:
                    continue
                with_statistics += 1
                found = pick(parquet.read_row_group(group)).drop_null().to_pylist()
                raw = [one.bytes for one in found]
                assert min(raw) == min(raw, key=signed) == statistics.min_raw
                assert max(raw) == max(raw, key=signed) == statistics.max_raw
        assert parquet.metadata.row_group(0).column(2).statistics.has_min_max
    assert bool(with_statistics) is some


@pytest.mark.parametrize("shape", SHAPES)
def test_every_value_is_found_and_files_by_time_are_pruned(table, shape):
    values, _ = SHAPES[shape]()
    table.append(rows(values, values))
    table.append(rows(values[:3], values[:3]))
    for value in {*values[:5], *values[-5:]} - {None}:
        scan = table.scan(where=f"u = '{value}' and s.u >= '{value}'")
        expected = values.count(value) + values[:3].count(value)
        assert scan.count() == expected
    if shape == "time":
        assert len(table.scan(where=f"u = '{values[-1]}'").plan().files) == 1
        assert len(table.scan(where=f"s.u <= '{values[0]}'").plan().files) == 2
        assert len(table.scan(where=f"u > '{values[-1]}'").plan().files) <= 1


def test_a_filter_on_a_uuid_in_a_struct_may_find_nothing(table):
    table.append(rows(at_random(10), at_random(10)))
    nobody = f"s.u = '{uuid.UUID(int=0)}'"
    assert table.scan(where=nobody).to_arrow().num_rows == 0
    assert table.scan(where=nobody, select=["u"]).count() == 0
    assert table.delete(nobody) is None
    assert table.scan().count() == 10
