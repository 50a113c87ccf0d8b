"""Metadata that contradicts itself prunes nothing: bounds, counts and summaries bent at random.

The oracle is DuckDB over the rows; the right answer or a typed error is asked for.
"""

from __future__ import annotations

import dataclasses
import json
import random
import struct

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.table import Table
from lakehouse.transaction.transaction import Transaction

ROWS = pa.table(
    {
        "l": pa.array([5, 10, None], pa.int64()),
        "s": pa.array(["zz", "b", None]),
        "f": pa.array([float("nan"), 1.0, None]),
    }
)
WHERE = [
    *("l = 5", "l > 7", "l between 0 and 100", "l is null", "l is not null", "not (l = 5)"),
    *("s = 'zz'", "s >= 'c'", "s is null", "s is not null", "s <> 'b'", "l in (10, 11)"),
    *("f > 0 and f < 2", "f is null"),
]


def inverted(chance: random.Random) -> dict[str, dict[int, bytes]]:
    """Bounds whose lower end is above the upper one."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    if chance.random() < 0.7:
        lower[1], upper[1] = struct.pack("<q", chance.randint(11, 99)), struct.pack("<q", 7)
    if chance.random() < 0.7:
        lower[2], upper[2] = b"zzz", chance.choice([b"", b"a", b"c"])
    if chance.random() < 0.7:
        lower[3], upper[3] = struct.pack("<d", 9.0), struct.pack("<d", chance.choice([-1.0, 0.5]))
    return {"lower_bounds": lower, "upper_bounds": upper}


def senseless(chance: random.Random) -> dict[str, dict[int, int]]:
    """Counts that cannot be those of three rows."""
    counts = {field_id: chance.choice([0, 1, 2, 4]) for field_id in (1, 2, 3)}
    nulls = {
        field_id: chance.choice([values, values + 1, 99]) for field_id, values in counts.items()
    }
    return {"value_counts": counts, "null_value_counts": nulls}


def added(table: Table, file: DataFile) -> None:
    transaction = Transaction(table.catalog, table.identifier)
    transaction.append([file])
    transaction.commit()


@pytest.mark.parametrize("seed", range(30))
def test_bounds_and_counts_that_contradict_themselves_decide_nothing(tmp_path, seed):
    chance = random.Random(seed)
    lake = lh.load_catalog(str(tmp_path))
    written = lake.create_table("a.written", ROWS.schema)
    written.append(ROWS)
    file: DataFile = written.scan().plan().tasks[0].data_file
    metrics = ("lower_bounds", "upper_bounds", "value_counts", "null_value_counts")
    bent = {name: {} for name in (*metrics, "nan_value_counts")}
    bent |= inverted(chance) if chance.random() < 0.7 else {}
    bent |= senseless(chance) if chance.random() < 0.7 else {}
    table = lake.create_table("a.bent", ROWS.schema)
    path = f"{table.location.rstrip('/')}/data/bent.parquet"
    table.storage.write(path, written.storage.read(file.file_path))
    added(table, dataclasses.replace(file, file_path=path, **bent))
    table = table.refresh()
    oracle = duckdb.connect()
    oracle.register("t", ROWS)
    for where in WHERE:
        (expected,) = oracle.sql(f"select count(*) from t where {where}").fetchone()
        assert table.scan(where=where).to_arrow().num_rows == expected, (where, bent)
        assert table.scan(where=where).count() == expected, (where, bent)
    assert table.scan().count() == 3


@pytest.mark.parametrize("with_ids", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("mapped", [True, False])
def test_ids_are_asked_of_each_column(tmp_path, with_ids, mapped):
    lake = lh.load_catalog(str(tmp_path))
    inner = pa.struct([("x", pa.int64())])
    table = lake.create_table("a.t", pa.schema([("a", pa.int64()), ("b", inner)]))
    if mapped:
        below = [{"field-id": 3, "names": ["x"]}]
        mapping = json.dumps(
            [
                {"field-id": 1, "names": ["a"]},
                {"field-id": 2, "names": ["b"], "fields": below},
            ]
        )
        table.set_properties({"schema.name-mapping.default": mapping})
        table = table.refresh()

    def field(name: str, kind: pa.DataType, field_id: int, named: bool) -> pa.Field:
        ids = {b"PARQUET:field_id": str(field_id).encode()} if named else None
        return pa.field(name, kind, metadata=ids)

    first, second = with_ids
    child = field("x", pa.int64(), 3, second)
    schema = pa.schema([field("a", pa.int64(), 1, first), field("b", pa.struct([child]), 2, True)])
    rows = [{"a": 1, "b": {"x": 2}}, {"a": None, "b": None}]
    path = tmp_path / "a" / "t" / "data" / "foreign.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    location = f"{table.location.rstrip('/')}/data/foreign.parquet"
    foreign = DataFile(
        file_path=location, file_format="parquet", partition=(), spec_id=0, record_count=2,
        file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    added(table, foreign)
    table = table.refresh()
    if mapped or with_ids == (True, True):
        assert table.scan().to_arrow().to_pylist() == rows
        assert table.scan(where="a is null").count() == 1
        table.delete(where="a is null and b is null")
        assert table.refresh().scan().to_arrow().to_pylist() == rows[:1]
    else:
        with pytest.raises(InvalidSchemaError, match=r"'a'|'b\.x'") as error:
            table.scan().to_arrow()
        assert "foreign.parquet" in str(error.value)
        with pytest.raises(InvalidSchemaError):
            table.delete(where="a is null")
