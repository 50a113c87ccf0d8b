"""Random histories of Java, pyiceberg and us in turn, beside equality deletes by any field.

Equality deletes are written by Java: by fields at any depth, null keys too, in the partitions of
any spec that the table had, before and after columns are dropped, renamed, widened, taken again.
Which rows they reach is decided by brute force: data files are opened without either engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)
from pyspark.sql import SparkSession

from lakehouse.maintenance.compaction.compaction import execute_compaction, plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.spark import attach
from lakehouse.table.scan import TableScan
from tests.conformance.java.json_rows import Row, rows_of, table_of
from tests.conformance.java.judge import JudgeError
from tests.conformance.java.random_history import CONFLICTS, History, MismatchError
from tests.conformance.java.random_rows import Pools, leaves

_KINDS: tuple[PrimitiveType, ...] = (
    IntegerType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(9, 2),
    DateType(),
    StringType(),
)
_TYPES_OF_SPARK = {BooleanType, BinaryType, *(type(kind) for kind in _KINDS)}
_PYICEBERG_LACKS = {
    "Cannot have redundant partitions": "identity and another transform of one column",
    "unsupported operand type(s) for <<": "a partition field that became void in v1",
    "division by zero": "NaN in a partition by identity",
    "Type not recognized: ": "two partition fields of one decimal or fixed in Java's manifests",
}
_JAVA_LACKS = "Cannot find required field for ID"


class _PoolsWithLists(Pools):
    """Without null lists: pyiceberg makes empty ones of them, also of those in files of others."""

    def row(self, table_schema: Schema, rid: int) -> Row:
        lists = {
            str(field.field_id)
            for field in table_schema.fields
            if isinstance(field.field_type, ListType)
        }
        row = super().row(table_schema, rid)
        return {key: [] if one is None and key in lists else one for key, one in row.items()}


class EvolvingHistory(History):
    """See the module."""

    kinds = ("jdbc",)
    versions = (1, 2, 2, 2, 3, 3)
    filters = 1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pools = _PoolsWithLists(self.random, size=3)
        self._branch = ""
        self._branch_rows: dict[int, Row] = {}
        self._branched_at: int | None = None

    def _steps(self) -> list[tuple[int, Callable[[], str]]]:
        some = bool(self._rows)
        steps: list[tuple[int, Callable[[], str]]] = [
            (5, self._append),
            (2, self._delete if some else self._append),
            (3, self._change if some else self._append),
            (6, self._equality_delete if some else self._append),
            (6, self._schema),
            (2, self._spec),
            (3, self._compact if some else self._append),
            (1, self._rewrite_manifests if self._snapshots and self._java_reads else self._append),
            (1, self._rollback),
            (6, self._overlap if some and self._java_reads else self._append),
            (1, self._storm),
            (1, self._upgrade),
            (2, self._branches if self._snapshots else self._append),
            (2, self._expire if self._snapshots else self._append),
        ]
        return steps

    def _new_schema(self) -> Schema:
        """Few kinds, so that keys meet; structs in structs."""
        kind = lambda: self.random.choice(_KINDS)  # noqa: E731
        inner = StructType(
            NestedField(8, "z", IntegerType(), required=False),
            NestedField(9, "w", kind(), required=False),
        )
        outer = StructType(
            NestedField(5, "x", kind(), required=False),
            NestedField(6, "y", kind(), required=False),
            NestedField(7, "t", inner, required=False),
        )
        many = ListType(11, StructType(NestedField(12, "v", kind(), required=False)), False)
        columns = [
            NestedField(2, "a", IntegerType(), required=False),
            NestedField(3, "b", kind(), required=self.random.random() < 0.2),
            NestedField(4, "s", outer, required=False),
            NestedField(10, "l", many, required=False),
        ]
        self.random.shuffle(columns)
        return Schema(NestedField(1, "rid", LongType(), required=True), *columns)

    def _fills_struct(self, transform: str, path: str, others: list[tuple[str, str]]) -> bool:
        """Fields may go until one is left in a struct."""
        return transform == "identity" and "." in path

    # Who does it

    def _by_java(self) -> bool:
        """Java reads no table whose equality deletes compare a column that was dropped."""
        return self._java_reads and super()._by_java()

    def _by_pyiceberg(self, *, reads: bool) -> bool:
        """pyiceberg writes no v3; it reads neither Avro nor equality deletes.

        The partition values of doubles that it writes are singles.
        """
        if self.version == 3 or self.random.random() > 0.35:
            return False
        table = self._both.table()
        kinds = {field_id: kind for _, field_id, kind in leaves(table.schema().as_struct())}
        if any(isinstance(kinds.get(field.source_id), DoubleType) for field in table.spec().fields):
            return False
        return not reads or self._pyiceberg_reads()

    def _pyiceberg_reads(self) -> bool:
        try:
            tasks = self._both.pyiceberg().scan().plan_files()
        except (ValueError, TypeError) as error:
            if not any(one in str(error) for one in ("equality deletes", *_PYICEBERG_LACKS)):
                raise
            return False
        return all(task.file.file_format == "PARQUET" for task in tasks)

    def _who_changes_schema(self) -> str:
        writers = ["Java", "pyiceberg"] if self.version == 1 else ["Java", "we", "we", "pyiceberg"]
        return self.random.choice(writers if self.version < 3 else ["Java", "we"])

    # What is done

    def _append(self) -> str:
        if not self._by_pyiceberg(reads=False):
            if self._java_reads or not self._java_commits():
                return super()._append()
            rows = self._new_rows(self.random.randint(1, 12))
            self._both.java("append", rows=rows, **self._java_options())
            self._keep(rows)
            return f"Java appends, blind: {len(rows)} rows"
        rows = self._new_rows(self.random.randint(1, 12))
        if not self._pyiceberg_can("append", table_of(rows, self._both.schema_of())):
            return super()._append()
        self._keep(rows)
        return f"pyiceberg appends: {len(rows)} rows"

    def _pyiceberg_can(self, verb: str, *arguments: Any, **more: Any) -> bool:
        """Whether pyiceberg does it; what it cannot is known by name, and leaves no commit."""
        try:
            getattr(self._both.pyiceberg(), verb)(*arguments, **more)
        except (ValueError, TypeError, ZeroDivisionError) as error:
            known = next((lack for lack in _PYICEBERG_LACKS if lack in str(error)), None)
            if known is None:
                raise
            self.counts[f"what pyiceberg cannot write: {_PYICEBERG_LACKS[known]}"] += 1
            return False
        return True

    def _delete(self) -> str:
        if not self._by_pyiceberg(reads=True):
            return super()._delete()
        rids = self._sample()
        if not self._pyiceberg_can("delete", f"rid in ({', '.join(map(str, rids))})"):
            return super()._delete()
        for rid in rids:
            del self._rows[rid]
        return f"pyiceberg deletes: {rids}"

    def _change(self) -> str:
        if not self._by_pyiceberg(reads=True):
            return super()._change()
        rids = self._sample()
        table_schema = self._both.schema_of()
        rows = [self._pools.row(table_schema, rid) for rid in rids]
        where = f"rid in ({', '.join(map(str, rids))})"
        new = table_of(rows, table_schema)
        if not self._pyiceberg_can("overwrite", new, overwrite_filter=where):
            return super()._change()
        self._keep(rows)
        return f"pyiceberg overwrites rows: {rids}"

    def _equality_delete(self) -> str:
        if self.version == 1:
            return self._append()
        rows, branch = self._rows, ""
        if self._branch and self._branch_rows and self.random.random() < 0.3:
            rows, branch = self._branch_rows, self._branch
        keys = self._keys_to_delete(rows)
        if keys is None:
            return self._append()
        gone = keys.reaches(rows, self._places(branch or "main"))
        beside: list[Row] = []
        if not branch and self.random.random() < 0.4:
            made = zip(self._new_rows(len(keys.probes)), keys.probes, strict=True)
            beside = [{**probe, self._rid(): row[self._rid()]} for row, probe in made]
        self._java_deletes(keys, beside=beside, **({"branch": branch} if branch else {}))
        for rid in gone:
            del rows[rid]
        self._keep(beside)
        self._branch_changed(branch)
        told = f"{keys} reaches {gone}, {len(beside)} rows come"
        return f"Java deletes by equality: {branch or 'main'} {told}"

    def _keys_to_delete(self, rows: dict[int, Row], only: str = "") -> Keys | None:
        """Values of some fields at any depth, in the partitions of any spec; None: none can be.

        `only`: of this one.
        """
        table = self._both.table()
        now, specs = table.schema(), table.metadata.specs()
        fields = {field_id: (path, kind) for path, field_id, kind in leaves(now.as_struct())}
        able = [
            number
            for number, spec in specs.items()
            if all(field.source_id in fields for field in spec.fields)
        ]
        spec_id = self.random.choice([*able, *[table.spec().spec_id] * 3])
        sources = {field.source_id for field in specs[spec_id].fields}
        # Java fails on a fixed that partitions and orders uuids in bounds another way
        ways = {
            path: _way(now, field_id)
            for field_id, (path, kind) in fields.items()
            if path != "rid"
            and only in ("", path)
            and not isinstance(kind, UUIDType)
            and not (isinstance(kind, FixedType) and field_id in sources)
        }
        if not ways or spec_id not in able:
            return None
        number = min(len(ways), self.random.choice((1, 1, 1, 2, 3)))
        names = sorted(self.random.sample(sorted(ways), number))
        probes = [self._probe(now, rows, names) for _ in range(self.random.choice((1, 1, 2)))]
        where = self._both.java("partitions", rows=probes, spec=spec_id)
        void = all(str(field.transform) == "void" for field in specs[spec_id].fields)
        keys = Keys(names, [ways[name] for name in names], probes, spec_id, where, void)
        return keys if self._alike(keys, rows) else None

    def _alike(self, keys: Keys, rows: dict[int, Row]) -> bool:
        """Java tells null in a field of a struct from a struct that is null, others do not."""
        if keys.equal(rows) == keys.equal(rows, levels=True):
            return True
        self.counts["nulls of structs and of their fields, which Java tells apart"] += 1
        return False

    def _java_deletes(self, keys: Keys, **more: Any) -> None:
        self._both.java(
            "equality-delete",
            columns=keys.names,
            rows=keys.probes,
            spec=keys.spec_id,
            format=self.random.choice(("parquet", "parquet", "avro")),
            **more,
        )

    def _overlap(self) -> str:
        """One prepares a commit, something else is committed, then the first one commits."""
        if self.version == 1:
            return self._append()
        return self.random.choice(self._held())()

    def _held(self) -> list[Callable[[], str]]:
        return [
            self._held_equality,
            self._outlived,
            self._held_append,
            self._held_delete,
            self._planned_compaction,
            self._planned_compaction,
            self._old_handle,
        ]

    def _between(self, *functions: Callable[[], str]) -> str:
        return self.random.choice(functions)()

    def _outlived(self) -> str:
        """A column is widened or comes with a default, is written, goes while rows go by it."""
        grown = self._schema(self.random.choice(("widen", "add")))
        path = self._changes.changed
        schema = self._both.schema_of()
        kind = schema.find_field(path).field_type
        around, sources = path.rpartition(".")[0], self._both.table().metadata.partition_specs
        alone = around and len(schema.find_field(around).field_type.fields) == 1
        if (
            alone
            or isinstance(kind, (FixedType, UUIDType))
            or any(
                field.source_id == schema.find_field(path).field_id
                for spec in sources
                for field in spec.fields
            )
        ):
            return grown
        appended = self._append()
        told = self._held_equality(path)
        return f"{grown}; {appended}; {told}"

    def _held_equality(self, path: str = "") -> str:
        """By some fields over anything, or by the one of `path`, which goes meanwhile."""
        keys = self._keys_to_delete(self._rows, path)
        before = dict(self._rows)
        if keys is None:
            return self._append()
        self._java_deletes(keys, hold="h")
        between = (
            self._schema("drop", path)
            if path
            else self._between(
                self._append, self._schema, self._schema, self._spec, self._compact, self._expire
            )
        )
        # rows that were there, by the fields that they had
        known = {rid: before.get(rid, row) for rid, row in self._rows.items()}
        if not self._alike(keys, known):
            return f"Java gives up an equality delete over: {between}"
        gone = keys.reaches(known, self._places("main"))
        self._both.java("commit", held="h")
        for rid in gone:
            del self._rows[rid]
        return f"Java deletes by equality over another commit: {keys} reaches {gone} over {between}"

    def _held_append(self) -> str:
        before = self._both.schema_of().as_struct()
        rows = self._new_rows(3)
        self._both.java("append", rows=rows, hold="h", **self._java_options())
        between = self._between(self._schema, self._schema, self._spec, self._equality_delete)
        self._both.java("commit", held="h")
        after = self._both.schema_of().as_struct()
        touched = self._touched
        self._keep([self._changes.migrated(row, before, after) for row in rows])
        self._touched |= touched
        return f"Java appends over another commit: {len(rows)} rows over {between}"

    def _held_delete(self) -> str:
        rids, mode = self._sample(), self._java_mode()
        self._both.java(mode, rids=rids, hold="h")
        between = self._between(self._append, self._schema, self._spec, self._equality_delete)
        try:
            self._both.java("commit", held="h")
        except JudgeError as error:
            if not error.is_conflict:
                raise
            return f"Java is refused to delete: {mode} {rids} over {between}"
        for rid in rids:
            self._rows.pop(rid, None)
        return f"Java deletes over another commit, {mode}: {rids} over {between}"

    def _planned_compaction(self) -> str:
        options = CompactionOptions(rewrite_all=True, min_input_files=1)
        catalog, identifier = self._both.lake.catalog, self._both.table().identifier
        plan = plan_compaction(catalog, identifier, options)
        between = self._between(
            self._append,
            self._delete,
            self._change,
            self._schema,
            self._spec,
            self._compact,
            self._equality_delete,
            self._equality_delete,
            self._equality_delete,
            self._upgrade,
        )
        stopped = execute_compaction(catalog, plan).stopped
        outcome = "stopped" if stopped else "committed"
        return f"we compact over another commit, {outcome}: over {between}"

    def _old_handle(self) -> str:
        """We delete and upsert by a handle opened before the other commit."""
        rids, table = self._sample(), self._both.table()
        between = self._between(
            self._append,
            self._spec,
            self._compact,
            self._equality_delete,
            lambda: f"{self._append()}, then {self._expire()}",
        )
        rows = [self._pools.row(table.schema(), rid) for rid in rids]
        verb = self.random.choice(("delete", "upsert"))
        try:
            if verb == "delete":
                table.delete(f"rid in ({', '.join(map(str, rids))})")
            else:
                table.upsert(table_of(rows, table.schema()), keys=["rid"])
        except CONFLICTS:
            return f"we are refused to {verb} by an old handle: {rids} over {between}"
        for rid in rids:
            self._rows.pop(rid, None)
        if verb == "upsert":
            touched = self._touched
            self._keep(rows)
            self._touched |= touched
        return f"we {verb} by an old handle: {rids} over {between}"

    def _probe(self, now: Schema, rows: dict[int, Row], names: list[str]) -> Row:
        """A row whose key is to go: one that is there, or half of another, or with nulls."""
        base = rows[self.random.choice(sorted(rows))]
        how = self.random.random()
        if how < 0.2:
            other = rows[self.random.choice(sorted(rows))]
            base = {**base, **{key: other[key] for key in other if self.random.random() < 0.5}}
        if how > 0.8:
            base = self._pools.row(now, 0)
        if self.random.random() < 0.15:
            way = _way(now, now.find_field(self.random.choice(names)).field_id)
            level = self.random.randrange(len(way))
            if not now.find_field(int(way[0])).required:
                base = _without(base, way[: level + 1])
        return base

    def _places(self, reference: str) -> dict[int, tuple[int, str]]:
        """Row -> spec and partition of its newest file, by opening all of them."""
        found: dict[int, tuple[int, tuple[int, str]]] = {}
        for file in self._both.java("places", ref=reference):
            place = (file["sequence-number"], (file["spec"], file["partition"]))
            for rid in _rids(file["path"].removeprefix("file:"), file["format"]):
                found[rid] = max(found.get(rid, place), place)
        return {rid: place for rid, (_, place) in found.items()}

    def _schema(self, kind: str = "", name: str = "") -> str:
        before = self._both.schema_of()
        said = super()._schema(kind, name)
        after = self._both.schema_of()
        self._branch_rows = {
            rid: self._changes.migrated(row, before.as_struct(), after.as_struct())
            for rid, row in self._branch_rows.items()
        }
        return said

    def _compact(self) -> str:
        if self._by_java() or self.random.random() < 0.5:
            return super()._compact()
        self._both.table().compact(CompactionOptions(min_input_files=2))
        return "we compact: some"

    def _expire(self) -> str:
        """Snapshots that no reference names; by Java also schemas and specs of these alone."""
        table = self._both.table()
        heads = {reference.snapshot_id for reference in table.refs().values()}
        old = [
            snapshot.snapshot_id
            for snapshot in table.snapshots()
            if snapshot.snapshot_id not in heads
        ]
        if not old:
            return self._append()
        gone = sorted(self.random.sample(old, self.random.choice((1, len(old)))))
        if self._java_commits():
            # of a field that no schema has any more nobody knows what deletes by it compare
            clean = self._java_reads and self.random.random() < 0.5
            self._both.java("expire", snapshots=gone, clean=clean)
            said = (
                f"Java expires{' all that nothing needs' if clean else ''}: {len(gone)} snapshots"
            )
        else:
            table.expire_snapshots(snapshot_ids=gone)
            said = f"we expire: {len(gone)} snapshots"
        for one in gone:
            self._snapshots.pop(one, None)
        return said

    def _branches(self) -> str:
        """A branch begins, gets rows, loses some, becomes main or goes."""
        table = self._both.table()
        head = table.current_snapshot()
        if head is None or self.version == 1:
            return self._append()
        if not self._branch:
            name = f"b{len(self.log)}"
            if self._java_commits():
                self._both.java("reference", change="branch", name=name, snapshot=head.snapshot_id)
            else:
                table.create_branch(name)
            self._branch, self._branch_rows = name, dict(self._rows)
            self._branched_at = head.snapshot_id
            return f"a branch begins: {name}"
        name = self._branch
        what = self.random.choice(("append", "append", "delete", "forward"))
        if what == "append" or not self._branch_rows:
            rows = self._new_rows(3)
            if self._java_commits():
                self._both.java("append", rows=rows, branch=name, **self._java_options())
            else:
                table.append(table_of(rows, table.schema()), branch=name)
            rid = self._rid()
            self._branch_rows |= {row[rid]: row for row in rows}
            self._branch_changed(name)
            return f"a branch gets rows: {name}"
        if what == "delete":
            rids = sorted(self.random.sample(sorted(self._branch_rows), 1))
            table.delete(f"rid = {rids[0]}", branch=name)
            del self._branch_rows[rids[0]]
            self._branch_changed(name)
            return f"we delete in a branch: {name} {rids}"
        if head.snapshot_id != self._branched_at:
            table.remove_ref(name)
            self._branch, self._branch_rows = "", {}
            return f"a branch goes: {name}"
        if self._java_commits():
            self._both.java("reference", change="fast-forward", name=name)
        else:
            table.fast_forward("main", name)
        self._rows = dict(self._branch_rows)
        self._ids.clear()
        self._both.table().remove_ref(name)
        self._branch, self._branch_rows = "", {}
        return f"main becomes what a branch is: {name}"

    def _branch_changed(self, branch: str) -> None:
        if not branch:
            return
        head = self._both.table().current_snapshot(ref=branch)
        if head.snapshot_id not in self._snapshots:
            self._snapshots[head.snapshot_id] = list(self._branch_rows.values())
            self._changes.seen(head.snapshot_id)

    # What is compared

    def _compare(self) -> None:
        super()._compare()
        expected = self._sorted(list(self._rows.values()))
        self._compare_ways(expected)
        if self._branch:
            table = self._both.table()
            got = rows_of(table.scan(ref=self._branch).to_arrow(), table.schema())
            rows = self._sorted(list(self._branch_rows.values()))
            self._same(f"of {self._branch} we read", self._sorted(got), rows)
            self.counts["branches read"] += 1

    def _compare_with_java(self, expected: list[Row]) -> None:
        self._java_reads = self._if_java_reads(super()._compare_with_java, expected)

    def _compare_snapshot_with_java(self, snapshot_id: int, expected: list[Row]) -> None:
        self._if_java_reads(super()._compare_snapshot_with_java, snapshot_id, expected)

    def _if_java_reads(self, compare: Callable[..., None], *arguments: Any) -> bool:
        try:
            compare(*arguments)
        except JudgeError as error:
            if _JAVA_LACKS not in error.message:
                raise
            self.counts["what Java cannot read: deletes by a dropped column"] += 1
            return False
        return True

    def _compare_ways(self, expected: list[Row]) -> None:
        """Three of the other ways out of a scan, in turn, and pyiceberg where it can."""
        table, rid = self._both.table(), self._rid()
        scan, one, none = table.scan, table.scan(select=["rid"]), table.scan(select=[])
        rids = [row[rid] for row in expected]

        def through_duckdb() -> list[Any]:
            relation = duckdb.connect().from_arrow(scan().to_batches())
            return [found for (found,) in relation.project("rid").fetchall()]

        def arrow(some: TableScan) -> list[Any]:
            return some.to_arrow()["rid"].to_pylist()

        def polars(some: TableScan) -> list[Any]:
            return some.to_polars()["rid"].to_list()

        ways: list[tuple[str, Callable[[], list[Any] | int]]] = [
            ("DuckDB", through_duckdb),
            ("count", lambda: scan().count()),
            ("one column", partial(arrow, one)),
            ("no column", lambda: none.to_arrow().num_rows),
            ("Polars", partial(polars, scan())),
            ("batches without columns", lambda: sum(len(found) for found in none.to_batches())),
            ("Polars, one column", partial(polars, one)),
        ]
        for name, way in [ways[(3 * len(self.log) + place) % len(ways)] for place in range(3)]:
            got = way()
            if (sorted(got) if isinstance(got, list) else got) != (
                rids if isinstance(got, list) else len(rids)
            ):
                raise MismatchError(f"{name}: {got} instead of {rids}")
            self.counts["other ways out"] += 1
        if self._rows and len(self.log) % 3 == 0 and self._pyiceberg_reads():
            self._compare_with_pyiceberg(expected)

    def compare_with_spark(self, spark: SparkSession) -> None:
        """Our reader in Spark, columns of types that Spark has; Avro files are compacted first."""
        table, rows = self._both.table(), len(self._rows)
        if any(task.data_file.file_format.upper() == "AVRO" for task in table.scan().plan().tasks):
            if table.metadata.format_version == 1:
                table.set_properties({"format-version": "2"})
            table.compact()  # as the error says that Spark would raise
            self.counts["heads with Avro files compacted for Spark"] += 1
        columns = [
            field.name
            for field in table.schema().fields
            if not _leaf_types(field.field_type) - _TYPES_OF_SPARK
        ]
        scan = table.scan(select=columns)
        found = {
            "rows": sorted(map(repr, scan.to_spark(spark).toArrow().to_pylist())),
            "count": scan.to_spark(spark).count(),
        }
        attach(spark, self._both.lake, name="judged")
        found["count(*)"] = spark.sql(f"select count(*) from judged.{self._both.table_name}")
        found["count(*)"] = found["count(*)"].first()[0]
        expected = sorted(map(repr, scan.to_arrow().to_pylist()))
        if found != {"rows": expected, "count": rows, "count(*)": rows}:
            raise MismatchError(f"Spark finds {found} instead of {rows} rows {expected}")
        self.counts["heads read by Spark"] += 1

    def _compare_with_pyiceberg(self, expected: list[Row]) -> None:
        try:
            found = self._both.pyiceberg().scan().to_arrow()
        except Exception as error:  # noqa: BLE001 - counted, it judges nothing then
            self.counts[f"pyiceberg cannot read: {type(error).__name__} {str(error)[:60]}"] += 1
            return
        got = self._sorted(rows_of(found, self._both.schema_of()))
        self._same("pyiceberg reads", got, expected)
        self.counts["heads read by pyiceberg"] += 1


@dataclass(frozen=True)
class Keys:
    """Keys that an equality delete names.

    Attributes:
        names: of the fields compared.
        ways: of each the ids on the way down.
        probes: rows with these keys, one a key.
        spec_id: the delete files are in partitions of this spec,
        where: these, one a key.
        everywhere: whether the spec has no partitions: rows of all specs are reached.
    """

    names: list[str]
    ways: list[list[str]]
    probes: list[Row]
    spec_id: int
    where: list[str]
    everywhere: bool

    def __str__(self) -> str:
        values = [[_at(probe, way) for way in self.ways] for probe in self.probes]
        return f"{self.names} = {values} in {self.where} of spec {self.spec_id}"

    def equal(self, rows: dict[int, Row], *, levels: bool = False) -> list[list[int]]:
        """For each key the rows that have it; with `levels` with null in the same structs too."""
        above = [way[:end] for way in self.ways for end in range(1, len(way))]
        return [
            [
                rid
                for rid, row in rows.items()
                if all(_at(row, way) == _at(probe, way) for way in self.ways)
                and not (
                    levels
                    and any((_at(row, way) is None) != (_at(probe, way) is None) for way in above)
                )
            ]
            for probe in self.probes
        ]

    def reaches(self, rows: dict[int, Row], places: dict[int, tuple[int, str]]) -> list[int]:
        """The rows that go."""
        return sorted(
            {
                rid
                for path, found in zip(self.where, self.equal(rows), strict=True)
                for rid in found
                if self.everywhere or places[rid] == (self.spec_id, path)
            }
        )


def _way(schema: Schema, field_id: int) -> list[str]:
    """Ids on the way down to a field."""

    def down(struct: StructType) -> list[str] | None:
        for field in struct.fields:
            if field.field_id == field_id:
                return [str(field_id)]
            if isinstance(field.field_type, StructType):
                found = down(field.field_type)
                if found is not None:
                    return [str(field.field_id), *found]
        return None

    found = down(schema.as_struct())
    if found is None:
        raise KeyError(field_id)
    return found


def _leaf_types(kind: IcebergType) -> set[type[IcebergType]]:
    if isinstance(kind, StructType):
        return {one for field in kind.fields for one in _leaf_types(field.field_type)}
    return _leaf_types(kind.element_type) if isinstance(kind, ListType) else {type(kind)}


def _at(row: Row | None, way: list[str]) -> Any:
    for step in way:
        if row is None:
            return None
        row = row[step]
    return row


def _without(row: Row, way: list[str]) -> Row:
    """The row with null at the end of the way, or above it."""
    first, *rest = way
    inner = row[first]
    return {**row, first: _without(inner, rest) if rest and inner is not None else None}


def _rids(path: str, kind: str) -> list[int]:
    if kind == "AVRO":
        with Path(path).open("rb") as file:
            return [one["rid"] for one in fastavro.reader(file)]
    return pq.read_table(path, columns=["rid"], partitioning=None)["rid"].to_pylist()
