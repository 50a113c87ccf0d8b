"""Equality deletes as Java and Flink write them, by fields at any depth, beside evolution.

The oracle is brute force over rows kept by field id: a row is gone once a later delete names its
values, null and absent alike.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

import lakehouse as lh
from lakehouse.errors import CorruptMetadataError, InvalidSchemaError, UnsupportedFeatureError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.table import Table
from lakehouse.transaction.transaction import Transaction
from tests.seeds import seeds

INNER = pa.struct([("z", pa.int32())])
OUTER = pa.struct([("x", pa.int32()), ("y", pa.string()), ("t", INNER)])
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("s", OUTER)])
KEYS = {"k": (2,), "x": (3, 4), "y": (3, 5), "z": (3, 6, 7)}
"""Ids on the way down to a field, by its name at the start."""
VALUES = {"k": [None, 1, 2, 3], "x": [None, 1, 2, 3], "z": [None, 1, 2, 3], "y": [None, "a", "b"]}
STEPS = ("append", "append", "delete", "delete", "delete", "drop", "promote", "again", "compact")


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(field_id).encode()})


def delete_by(table: Table, keys: dict[tuple[int, ...], pa.Array], *, flat: bool = False) -> None:
    """Commit an equality delete file: columns inside the structs of the table, or at the top."""
    fields, arrays = [], []
    for path, values in keys.items():
        array, column = values, with_id(f"c{path[-1]}", values.type, path[-1])
        for above in () if flat else reversed(path[:-1]):
            array = pa.StructArray.from_arrays([array], fields=[column])
            column = with_id(f"c{above}", array.type, above)
        fields.append(column)
        arrays.append(array)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), sink)
    data = sink.getvalue().to_pybytes()
    path = f"{table.location.rstrip('/')}/data/{uuid.uuid4()}.parquet"
    table.storage.write(path, data)
    transaction = Transaction(table.catalog, table.identifier)
    deletes = DataFile(
        content=2,
        file_path=path,
        file_format="parquet",
        partition=(),
        spec_id=0,
        record_count=len(arrays[0]),
        file_size_in_bytes=len(data),
        equality_ids=tuple(path[-1] for path in keys),
    )
    transaction.row_delta(delete_files=[deletes])
    transaction.commit()


@dataclass
class Model:
    """Rows by field id, alive ones alone."""

    table: Table
    chance: random.Random
    rows: list[dict[int, Any]] = field(default_factory=list)
    there: dict[str, int] = field(
        default_factory=lambda: {name: ids[-1] for name, ids in KEYS.items()}
    )
    promoted: set[str] = field(default_factory=set)
    last_id: int = 0

    def append(self) -> None:
        new = []
        for _ in range(self.chance.randint(1, 5)):
            self.last_id += 1
            small = lambda: self.chance.choice([None, 1, 2, 3])  # noqa: E731
            values = {
                "k": small(),
                "x": small(),
                "z": small(),
                "y": self.chance.choice([None, "a", "b"]),
            }
            row = {"id": self.last_id, **{name: values[name] for name in self.there}}
            new.append(row)
            self.rows.append({1: self.last_id, **{i: row[name] for name, i in self.there.items()}})
        schema = self.table.refresh().scan().to_arrow().schema
        self.table.append(pa.Table.from_pylist([self._nested(row) for row in new], schema))

    def _nested(self, row: dict[str, Any]) -> dict[str, Any]:
        names = set(self.there)
        result = {"id": row["id"]}
        if "k" in names:
            result["k"] = row["k"]
        if names & {"x", "y", "z"}:
            result["s"] = {name: row[name] for name in ("x", "y") if name in names}
            if "z" in names:
                result["s"]["t"] = {"z": row["z"]}
        return result

    def kind(self, name: str) -> pa.DataType:
        if name == "y":
            return pa.string()
        return pa.int64() if name in self.promoted else pa.int32()

    def delete(self) -> None:
        # also by columns that are dropped: their ids stay in the files
        names = self.chance.sample(sorted(KEYS), self.chance.randint(1, 2))
        rows = self.chance.randint(1, 2)
        values = {
            name: [
                self.chance.choice([None, "a", "b"] if name == "y" else [None, 1, 2, 3])
                for _ in range(rows)
            ]
            for name in names
        }
        kinds = {
            name: pa.string()
            if name == "y"
            else pa.int64()
            if name in self.promoted
            else pa.int32()
            for name in names
        }
        keys = {KEYS[name]: pa.array(values[name], kinds[name]) for name in names}
        delete_by(self.table.refresh(), keys, flat=self.chance.random() < 0.3)
        gone = {tuple(values[name][row] for name in names) for row in range(rows)}
        ids = [KEYS[name][-1] for name in names]
        self.rows = [row for row in self.rows if tuple(row.get(i) for i in ids) not in gone]

    def drop(self) -> None:
        if not self.there:
            return
        name = self.chance.choice(sorted(self.there))
        inside = name != "k"
        with self.table.refresh().update_schema() as update:
            if inside and self.chance.random() < 0.3:
                update.drop_column("s")
                for one in {"x", "y", "z"} & set(self.there):
                    del self.there[one]
                return
            left = {"x", "y", "z"} & set(self.there) - {name}
            if inside and not left:
                update.drop_column("s")
            elif name == "z":
                update.drop_column("s.t")
            else:
                update.drop_column(f"s.{name}" if inside else name)
        del self.there[name]

    def promote(self) -> None:
        name = self.chance.choice(["k", "x"])
        if name in self.there and name not in self.promoted:
            with self.table.refresh().update_schema() as update:
                update.update_column(name if name == "k" else f"s.{name}", LongType())
            self.promoted.add(name)

    def again(self) -> None:
        """Take a dropped name again: another column."""
        if "k" not in self.there and "k" not in self.table.refresh().schema().column_names:
            with self.table.refresh().update_schema() as update:
                update.add_column("k", LongType())

    def compact(self) -> None:
        self.table.refresh().compact(lh.CompactionOptions(rewrite_all=True))
        # rewritten files hold the present columns
        kept = {1, *self.there.values()}
        self.rows = [{i: row[i] for i in row if i in kept} for row in self.rows]

    def check(self) -> None:
        table, ids = self.table.refresh(), sorted(row[1] for row in self.rows)
        assert sorted(table.scan(select=["id"]).to_arrow()["id"].to_pylist()) == ids
        assert table.scan().count() == len(ids)
        assert table.scan(select=[]).to_arrow().num_rows == len(ids)
        assert sum(batch.num_rows for batch in table.scan(select=[]).to_batches()) == len(ids)
        assert table.scan(where="id > 2").count() == len([one for one in ids if one > 2])
        for name, path in KEYS.items():
            if name in self.there:
                whole = table.scan().to_arrow().to_pylist()
                assert {row["id"]: _at(row, name) for row in whole} == {
                    row[1]: row.get(path[-1]) for row in self.rows
                }


def _at(row: dict[str, Any], name: str) -> Any:
    if name == "k":
        return row["k"]
    struct = row["s"]
    if name == "z":
        struct = struct and struct["t"]
    return None if struct is None else struct[name]


@pytest.mark.parametrize("seed", seeds(8, of=40))
def test_rows_are_those_that_no_later_delete_names(tmp_path, seed):
    chance = random.Random(seed)
    version = chance.choice([2, 3])
    table = lh.load_catalog(str(tmp_path)).create_table("a.t", SCHEMA, format_version=version)
    model = Model(table, chance)
    model.append()
    for _ in range(10):
        getattr(model, chance.choice(STEPS))()
        model.check()


def test_a_file_that_lacks_its_key_or_compares_a_collection_is_named(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("s", OUTER), ("xs", pa.list_(pa.int64()))])
    lake = lh.load_catalog(str(tmp_path))

    def broken(name: str, keys: dict[tuple[int, ...], pa.Array]) -> Table:
        table = lake.create_table(f"a.{name}", schema)
        table.append(
            pa.table({"id": [1], "s": [{"x": 1, "y": "a", "t": None}], "xs": [[1]]}, schema)
        )
        delete_by(table, keys, flat=True)
        return table.refresh()

    ints = pa.array([1], pa.int64())
    ids = {one.name: one.field_id for one in lake.create_table("a.x", schema).schema().fields}
    element = lake.load_table("a.x").schema().find_field("xs.element").field_id
    with pytest.raises(UnsupportedFeatureError, match=r"\.parquet compares 's'.*primitive"):
        broken("whole_struct", {(ids["s"],): ints}).scan().to_arrow()
    with pytest.raises(UnsupportedFeatureError, match=r"\.parquet compares .*inside a list"):
        broken("element", {(element,): ints}).scan().to_arrow()
    with pytest.raises(InvalidSchemaError, match=r"\.parquet compares field id 99, which no"):
        broken("unknown", {(99,): ints}).scan().to_arrow()


def test_a_delete_file_without_the_column_it_compares_is_corrupt(tmp_path):
    table = lh.load_catalog(str(tmp_path)).create_table("a.t", SCHEMA)
    table.append(pa.table({"id": [1, 2], "k": [None, 2], "s": [None, None]}, SCHEMA))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([pa.array([2])], schema=pa.schema([with_id("k", pa.int64(), 9)])), sink)
    data, path = sink.getvalue().to_pybytes(), f"{table.location.rstrip('/')}/data/eq.parquet"
    table.storage.write(path, data)
    transaction = Transaction(table.catalog, table.identifier)
    transaction.row_delta(
        delete_files=[
            DataFile(
                content=2, file_path=path, file_format="parquet", partition=(), spec_id=0,
                record_count=1, file_size_in_bytes=len(data), equality_ids=(2,),
            )
        ]
    )  # fmt: skip
    transaction.commit()
    with pytest.raises(CorruptMetadataError, match=r"eq\.parquet lacks field id 2"):
        table.refresh().scan().to_arrow()
