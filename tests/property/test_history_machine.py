"""Any sequence of writes and evolutions: old snapshots read as when they were current.

The model beside the table keeps rows by column id and knows nothing of files, specs or deletes.
"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakehouse as lh

NUMBERS = itertools.count()
WIDER = {"int": "long", "float": "double"}
KINDS = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
MODES = st.sampled_from(["copy-on-write", "merge-on-read"])
SPECS = [(), ("bucket(2, k)",), ("k",), ("truncate(2, k)", "bucket(3, k)")]
TERMS = st.sampled_from(["bucket(2, k)", "bucket(3, k)", "k", "truncate(2, k)"])
KEYS = st.integers(0, 4)


class Column:
    """A column by its identity: name and type may change."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind


class History(RuleBasedStateMachine):
    table: lh.Table

    @initialize(
        version=st.sampled_from([2, 3]),
        spec=st.sampled_from(SPECS),
        mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
    )
    def start(self, version, spec, mode):
        catalog = lh.load_catalog("memory://history")
        self.columns = [Column("k", "long"), Column("a", "int"), Column("b", "string")]
        self.rows: list[dict[Column, Any]] = []
        self.seen: dict[int, tuple[list[str], list[str]]] = {}
        self.names = itertools.count()
        schema = pa.schema([(column.name, KINDS[column.kind]) for column in self.columns])
        properties = {"write.delete.mode": mode}
        name = f"raw.t{next(NUMBERS)}"
        self.table = catalog.create_table(
            name, schema, partition_by=spec, format_version=version, properties=properties
        )

    def shown(self) -> tuple[list[str], list[str]]:
        names = [column.name for column in self.columns]
        return names, sorted(
            repr([row.get(column) for column in self.columns]) for row in self.rows
        )

    def note(self) -> None:
        snapshot = self.table.current_snapshot()
        if snapshot is not None:
            self.seen.setdefault(snapshot.snapshot_id, self.shown())

    def made(self, keys, values) -> tuple[pa.Table, list[dict[Column, Any]]]:
        rows = []
        for key, value in zip(keys, values, strict=False):
            row: dict[Column, Any] = {self.columns[0]: key}
            for column in self.columns[1:]:
                if value is not None:
                    row[column] = (
                        str(value)
                        if column.kind == "string"
                        else value / 2
                        if column.kind in ("float", "double")
                        else value
                    )
            rows.append(row)
        arrays = [
            pa.array([row.get(column) for row in rows], KINDS[column.kind])
            for column in self.columns
        ]
        return pa.table(arrays, names=[column.name for column in self.columns]), rows

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=5),
        values=st.lists(st.none() | st.integers(-3, 3), min_size=5, max_size=5),
    )
    def append(self, keys, values):
        data, rows = self.made(keys, values)
        self.table.append(data)
        self.rows += rows
        self.note()

    @rule(
        key=KEYS,
        keys=st.lists(KEYS, max_size=2),
        values=st.lists(st.none() | st.integers(-3, 3), min_size=2, max_size=2),
    )
    def overwrite(self, key, keys, values):
        data, rows = self.made(keys, values)
        self.table.overwrite(data, where=f"k = {key}")
        self.rows = [row for row in self.rows if row[self.columns[0]] != key] + rows
        self.note()

    @rule(key=KEYS)
    def delete(self, key):
        self.table.delete(f"k = {key}")
        self.rows = [row for row in self.rows if row[self.columns[0]] != key]
        self.note()

    @rule(kind=st.sampled_from(sorted(KINDS)), reuse=st.booleans())
    def add_column(self, kind, reuse):
        """Half of the time under a name that some column had once."""
        taken = {column.name for column in self.columns}
        name = next((old for old in ("a", "b") if old not in taken), None) if reuse else None
        column = Column(name or f"c{next(self.names)}", kind)
        with self.table.update_schema() as schema:
            schema.add_column(column.name, kind)
        self.columns.append(column)

    @precondition(lambda self: len(self.columns) > 1)
    @rule(data=st.data())
    def drop_column(self, data):
        column = data.draw(st.sampled_from(self.columns[1:]))
        with self.table.update_schema() as schema:
            schema.drop_column(column.name)
        self.columns.remove(column)

    @precondition(lambda self: len(self.columns) > 1)
    @rule(data=st.data())
    def rename_or_widen(self, data):
        column = data.draw(st.sampled_from(self.columns[1:]))
        wider = WIDER.get(column.kind)
        with self.table.update_schema() as schema:
            if wider is not None and data.draw(st.booleans()):
                schema.update_column(column.name, wider)
                column.kind = wider
            else:
                name = f"r{next(self.names)}"
                schema.rename_column(column.name, name)
                column.name = name

    @precondition(lambda self: len(self.columns) > 1)
    @rule(data=st.data())
    def move(self, data):
        column = data.draw(st.sampled_from(self.columns[1:]))
        with self.table.update_schema() as schema:
            schema.move_after(column.name, "k")
        self.columns.remove(column)
        self.columns.insert(1, column)

    @rule(term=TERMS, remove=st.booleans())
    def change_spec(self, term, remove):
        present = [field.name for field in self.table.spec().fields]
        try:
            with self.table.update_partition_spec() as spec:
                if remove and present:
                    spec.remove(present[0])
                else:
                    spec.add(term)
        except lh.LakehouseError:
            assert len(present) > 0, "a field cannot be refused where there is none"

    @rule(column=st.sampled_from(["k"]), down=st.booleans())
    def change_order(self, column, down):
        with self.table.update_sort_order() as order:
            order.desc(column) if down else order.asc(column)

    @rule()
    def compact(self):
        self.table.compact(lh.CompactionOptions(min_input_files=2))
        self.note()

    @rule()
    def rewrite_manifests(self):
        self.table.rewrite_manifests()
        self.note()

    @invariant()
    def the_head_is_what_the_model_says(self):
        if not hasattr(self, "seen"):
            return
        names, rows = self.shown()
        read = self.table.scan().to_arrow()
        assert read.column_names == names
        assert sorted(repr(list(row.values())) for row in read.to_pylist()) == rows

    def teardown(self):
        for snapshot_id, (names, rows) in getattr(self, "seen", {}).items():
            read = self.table.scan(snapshot_id=snapshot_id).to_arrow()
            assert read.column_names == names
            assert sorted(repr(list(row.values())) for row in read.to_pylist()) == rows


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=20, stateful_step_count=15)
