"""A random history of one table, written by both in turn and at once, judged by a model of rows.

After every step both read everything: rows, random filters, row lineage, schema; at the end every
snapshot. What they read must be what the model says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, UUIDType

import lakehouse as lh
from lakehouse.errors import CommitConflictError, ValidationConflictError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions
from tests.conformance.java.both_engines import BothEngines
from tests.conformance.java.json_rows import Row, table_of
from tests.conformance.java.judge import Judge, JudgeError
from tests.conformance.java.random_filters import random_filter
from tests.conformance.java.random_rows import Pools, fills_struct, leaves, schema, transforms
from tests.conformance.java.schema_changes import SchemaChanges

CONFLICTS = (CommitConflictError, ValidationConflictError)


class MismatchError(Exception):
    """The two, or one of them and the model, disagree."""


class History:
    """One table and what happens to it.

    Args:
        seed: decides everything.
        judge: Java.
        folder: empty.
        counts: what was done and compared, added to.
    """

    kinds: tuple[str, ...] = ("hadoop", "jdbc")
    versions: tuple[int, ...] = (1, 2, 2, 3, 3, 3)
    filters = 4

    def __init__(self, seed: int, judge: Judge, folder: Path, counts: Counter[str]) -> None:
        self.random = Random(seed)
        self.counts = counts
        self.log: list[str] = []
        self.version = self.random.choice(self.versions)
        self._kind = self.random.choice(self.kinds)
        self._both = BothEngines(judge, folder, self._kind)
        self._pools = Pools(self.random)
        self._rows: dict[int, Row] = {}
        self._ids: dict[int, tuple[int, int]] = {}
        self._touched: set[int] = set()
        self._upserted: set[int] = set()
        self._snapshots: dict[int, list[Row]] = {}
        self._next = 0
        self._respecified = False
        self._java_reads = True

    def run(self, steps: int) -> None:
        """Create the table, take the steps, compare. Raises MismatchError."""
        self._create()
        for _ in range(steps):
            self._step()
            self._compare()
        self._compare_snapshots()

    # What is done

    def _create(self) -> None:
        found = self._new_schema()
        paths = [(path, kind) for path, _, kind in leaves(found.as_struct())]
        terms: list[tuple[str, str]] = []
        for path, kind in self.random.sample(
            paths, min(len(paths), self.random.choice((0, 1, 1, 2)))
        ):
            transform = self.random.choice(transforms(kind))
            if not self._fills_struct(transform, path, terms):
                terms.append((transform, path))
        properties = {
            "format-version": str(self.version),
            "write.delete.mode": self.random.choice(("copy-on-write", "merge-on-read")),
            "write.merge.mode": self.random.choice(("copy-on-write", "merge-on-read")),
            "write.delete.granularity": self.random.choice(("file", "partition")),
            "write.metadata.metrics.default": self.random.choice(
                ("truncate(16)", "truncate(2)", "full", "counts", "none")
            ),
            "commit.manifest.min-count-to-merge": self.random.choice(("3", "100")),
            "commit.retry.num-retries": "50",
            "history.expire.min-snapshots-to-keep": "1000",
        }
        if self.random.random() < 0.5:  # several row groups
            properties |= {
                "write.parquet.row-group-limit": "3",
                "write.parquet.row-group-size-bytes": "300",
                "write.parquet.row-group-check-min-record-count": "2",
                "write.parquet.row-group-check-max-record-count": "2",
            }
        by_java = self._by_java()
        who = "Java" if by_java else "we"
        self.log.append(f"{who} create v{self.version} in {self._kind}: {found} by {terms}")
        self._both.create(found, terms, properties, by_java=by_java)
        self._changes = SchemaChanges(self.random, self._both)

    def _new_schema(self) -> Schema:
        return schema(self.random, self.version)

    def _fills_struct(self, transform: str, path: str, others: list[tuple[str, str]]) -> bool:
        return fills_struct(transform, path, others)

    def _steps(self) -> list[tuple[int, Callable[[], str]]]:
        """What may happen next, with weights."""
        return [
            (6, self._append),
            (4, self._delete if self._rows else self._append),
            (4, self._change if self._rows else self._append),
            (2, self._equality_delete if self._rows else self._append),
            (2, self._schema),
            (1, self._spec),
            (2, self._compact if self._rows else self._append),
            (1, self._rewrite_manifests if self._snapshots else self._append),
            (1, self._rollback),
            (4, self._overlap if self._rows else self._append),
            (1, self._storm),
            (1, self._upgrade),
        ]

    def _step(self) -> None:
        self._touched, self._upserted = set(), set()
        weights, functions = zip(*self._steps(), strict=True)
        (chosen,) = self.random.choices(functions, weights)
        self.log.append(f"{chosen.__name__.strip('_')} ...")
        self.log[-1] = chosen()
        self.counts[f"step {self.log[-1].split(':')[0]}"] += 1
        self.counts["commits"] += 8 if chosen == self._storm else 1

    def _by_java(self) -> bool:
        """Whether Java does it: always in v1, which we do not write."""
        return self.version == 1 or self.random.random() < 0.5

    def _java_commits(self) -> bool:
        """Whether Java does what it need not read the table for."""
        return self.version == 1 or self.random.random() < 0.5

    def _new_rows(self, count: int) -> list[Row]:
        table_schema = self._both.schema_of()
        rows = [self._pools.row(table_schema, self._next + n) for n in range(count)]
        self._next += count
        return rows

    def _keep(self, rows: list[Row]) -> None:
        rid = self._rid()
        self._rows |= {row[rid]: row for row in rows}
        self._touched |= {row[rid] for row in rows}

    def _rid(self) -> str:
        return str(self._both.schema_of().find_field("rid").field_id)

    def _sample(self) -> list[int]:
        return sorted(
            self.random.sample(
                sorted(self._rows), self.random.randint(1, max(1, len(self._rows) // 3))
            )
        )

    def _append(self) -> str:
        rows = self._new_rows(self.random.randint(1, 12))
        if self._by_java():
            options = self._java_options()
            self._both.java("append", rows=rows, fast=self.random.random() < 0.3, **options)
            said = f"Java appends: {len(rows)} rows {options}"
        else:
            self._both.append(rows)
            said = f"we append: {len(rows)} rows"
        self._keep(rows)
        return said

    def _java_options(self) -> dict[str, Any]:
        return {
            "format": self.random.choice(("parquet", "parquet", "parquet", "avro")),
            "files": self.random.choice((1, 1, 2)),
        }

    def _delete(self) -> str:
        rids = self._sample()
        if self._by_java():
            mode = self._java_mode()
            granularity = self.random.choice(("file", "partition"))
            self._both.java(mode, rids=rids, granularity=granularity)
            said = f"Java deletes, {mode}: {rids} {granularity}"
        else:
            self._both.table().delete(f"rid in ({', '.join(map(str, rids))})")
            said = f"we delete: {rids}"
        for rid in rids:
            del self._rows[rid]
        return said

    def _java_mode(self) -> str:
        """v1 has no delete files."""
        modes = ("copy-on-write", "merge-on-read")
        return "copy-on-write" if self.version == 1 else self.random.choice(modes)

    def _change(self) -> str:
        """Other values for some rows."""
        rids = self._sample()
        table_schema = self._both.schema_of()
        rows = [self._pools.row(table_schema, rid) for rid in rids]
        if self._by_java():
            mode = self._java_mode()
            self._both.java(mode, rows=rows, **self._java_options())
            said = f"Java changes rows, {mode}: {rids}"
        elif self.random.random() < 0.6:
            rows += self._new_rows(self.random.randint(0, 3))
            table = self._both.table()
            done = table.upsert(table_of(rows, table.schema()), keys=["rid"])
            if (done.rows_updated, done.rows_inserted) != (len(rids), len(rows) - len(rids)):
                raise MismatchError(f"an upsert of {len(rids)} rows and others said {done}")
            self._upserted = set(rids)
            said = f"we upsert rows: {rids} and {len(rows) - len(rids)} more"
        else:
            table = self._both.table()
            where = f"rid in ({', '.join(map(str, rids))})"
            table.overwrite(table_of(rows, table.schema()), where=where)
            said = f"we overwrite rows: {rids}"
        self._keep(rows)
        return said

    def _equality_delete(self) -> str:
        """By the values that one row has in some columns; they reach all that are equal in them."""
        table_schema = self._both.schema_of()
        partitioned = {
            table_schema.find_column_name(field.source_id)
            for field in self._both.table().spec().fields
        }
        top = [path for path, _, _ in leaves(table_schema.as_struct()) if "." not in path]
        # Java fails on equality deletes of a fixed that partitions, and does not find data files
        # for those of uuids, whose bounds it reads in another order than it writes them
        failing = {
            path
            for path, _, kind in leaves(table_schema.as_struct())
            if isinstance(kind, UUIDType) or (isinstance(kind, FixedType) and path in partitioned)
        }
        able = sorted(set(top) - failing)
        if self.version == 1 or self._respecified or not partitioned <= set(able):
            return self._append()
        chosen = self.random.sample(able, min(len(able), self.random.randint(1, 2)))
        wanted = sorted(partitioned | set(chosen))
        ids = [str(table_schema.find_field(name).field_id) for name in wanted]
        row = self._rows[self.random.choice(sorted(self._rows))]
        self._both.java("equality-delete", columns=wanted, rows=[row])
        self._changes.in_deletes.update(map(int, ids))
        key = [row[one] for one in ids]
        gone = [rid for rid, other in self._rows.items() if [other[one] for one in ids] == key]
        for rid in gone:
            del self._rows[rid]
        return f"Java deletes by equality: {dict(zip(wanted, key, strict=True))} reaches {gone}"

    def _schema(self, kind: str = "", name: str = "") -> str:
        before = self._both.schema_of()
        said = self._changes.change(self._who_changes_schema(), self.version, kind, name)
        after = self._both.schema_of()
        self._rows = {
            rid: self._changes.migrated(row, before.as_struct(), after.as_struct())
            for rid, row in self._rows.items()
        }
        self._pools.forget()
        return said

    def _who_changes_schema(self) -> str:
        return "Java" if self._by_java() else "we"

    def _spec(self) -> str:
        table = self._both.table()
        fields = [field for field in table.spec().fields if str(field.transform) != "void"]
        if fields and self.random.random() < 0.5:
            name = self.random.choice(fields).name
            if self._by_java():
                self._both.java("spec", changes=[{"change": "remove", "name": name}])
            else:
                with table.update_partition_spec() as change:
                    change.remove(name)
            self._respecified = True
            return f"a partition field goes: {name}"
        there = {(field.source_id, str(field.transform)) for field in fields}
        path, field_id, kind = self.random.choice(list(leaves(table.schema().as_struct())))
        transform = self.random.choice(transforms(kind))
        used = {str(field.transform) for field in fields if field.source_id == field_id}
        names = [
            (str(field.transform), table.schema().find_column_name(field.source_id) or "")
            for spec in table.metadata.partition_specs
            for field in spec.fields
        ]
        if (
            (field_id, transform) in there
            or used & {"year", "month", "day", "hour"}
            or self._fills_struct(transform, path, names)
        ):
            return self._append()
        name = f"p{max(table.metadata.specs()) + 10}"
        if self._by_java():
            change = {"change": "add", "name": name, "transform": transform, "column": path}
            self._both.java("spec", changes=[change])
        else:
            ours = transform if "[" in transform else f"{transform}[]"
            function, _, width = ours.rstrip("]").partition("[")
            text = f"{function}({width}, {path})" if width else f"{function}({path})"
            with table.update_partition_spec() as update:
                update.add(text, name)
        self._respecified = True
        return f"a partition field comes: {name} = {transform} of {path}"

    def _compact(self) -> str:
        if self._by_java():
            self._both.java("compact", **self._java_options())
            return "Java compacts: all"
        self._both.table().compact(CompactionOptions(rewrite_all=True, min_input_files=1))
        return "we compact: all"

    def _rewrite_manifests(self) -> str:
        if self._by_java():
            self._both.java("rewrite-manifests")
            return "Java rewrites manifests: all"
        self._both.table().rewrite_manifests(ManifestRewriteOptions(force=True))
        return "we rewrite manifests: all"

    def _rollback(self) -> str:
        """To the parent of the current snapshot, if that was read with the present schema."""
        table = self._both.table()
        head = table.current_snapshot()
        parent = None if head is None else head.parent_snapshot_id
        if parent not in self._snapshots or self._changes.since(parent):
            return self._append()
        if self._by_java():
            self._both.java("reference", change="rollback", snapshot=parent)
            said = f"Java rolls back: {parent}"
        else:
            table.rollback_to(parent)
            said = f"we roll back: {parent}"
        rid = self._rid()
        self._rows = {row[rid]: row for row in self._snapshots[parent]}
        self._ids.clear()
        return said

    def _upgrade(self) -> str:
        if self.version == 3:
            return self._append()
        self.version += 1
        properties = {"format-version": str(self.version)}
        if self._java_commits():
            self._both.java("properties", set=properties)
        else:
            self._both.table().set_properties(properties)
        return f"the table is upgraded: v{self.version}"

    def _storm(self) -> str:
        """Both append at the same time; only a catalog with a true compare-and-swap is for that."""
        if self._kind == "hadoop" or self.version == 1:
            return self._append()
        ours, theirs = ([self._new_rows(2) for _ in range(4)] for _ in range(2))
        self._both.java("storm", storm="s", batches=theirs)
        for rows in ours:
            self._both.append(rows)
        self._both.java("join", storm="s")
        for rows in ours + theirs:
            self._keep(rows)
        return "both append at once: 4 commits each"

    def _overlap(self) -> str:
        """One prepares a commit, the other commits, then the first one does."""
        if self.version == 1:
            return self._append()
        first, second = (self.random.choice(("append", "delete", "compact")) for _ in range(2))
        held = self._new_rows(3) if first == "append" else []
        quick = self._new_rows(3) if second == "append" else []
        gone = self._sample() if first == "delete" else []
        also_gone = self._sample() if second == "delete" else []
        java_first = self.random.random() < 0.5
        if java_first:
            commit = self._java_holds(first, held, gone)
            self._ours_does(self._both.table(), second, quick, also_gone)
        else:
            table = self._both.table()
            self._java_does(second, quick, also_gone)
            commit = lambda: self._ours_does(table, first, held, gone)  # noqa: E731
        self._keep(quick)
        for rid in also_gone:
            self._rows.pop(rid, None)
        who = "Java" if java_first else "we"
        try:
            commit()
            outcome = "committed"
            self._keep(held)
            for rid in gone:
                self._rows.pop(rid, None)
        except CONFLICTS:
            outcome = "refused"
        except JudgeError as error:
            if not error.is_conflict:
                raise
            outcome = "refused"
        if first == "append" and outcome == "refused":
            raise MismatchError(f"{who} could not append beside {second}")
        return f"{who} {first} over a {second} that came between, {outcome}: {gone} {also_gone}"

    def _java_holds(self, what: str, rows: list[Row], rids: list[int]) -> Callable[[], Any]:
        self._java_does(what, rows, rids, hold="h")
        return lambda: self._both.java("commit", held="h")

    def _java_does(self, what: str, rows: list[Row], rids: list[int], **more: Any) -> None:
        if what == "delete":
            self._both.java(self._java_mode(), rids=rids, **more)
        else:
            self._both.java(what, rows=rows, **more)

    def _ours_does(self, table: lh.Table, what: str, rows: list[Row], rids: list[int]) -> None:
        if what == "append":
            self._both.append(rows, table)
        elif what == "delete":
            table.delete(f"rid in ({', '.join(map(str, rids))})")
        else:
            table.compact(CompactionOptions(rewrite_all=True, min_input_files=1))

    # What is compared

    def _compare(self) -> None:
        expected = self._sorted(list(self._rows.values()))
        self._same("we read", self._sorted(self._both.our_rows()), expected)
        self._compare_with_java(expected)
        self.counts["rows of heads read by both"] += len(expected)
        self._compare_schema()
        for _ in range(self.filters):
            self._compare_filter()
        self._compare_lineage()
        head = self._both.table().current_snapshot()
        if head is not None and head.snapshot_id not in self._snapshots:
            self._snapshots[head.snapshot_id] = list(self._rows.values())
            self._changes.seen(head.snapshot_id)

    def _compare_with_java(self, expected: list[Row]) -> None:
        self._same("Java reads", self._sorted(self._both.java_rows()), expected)
        self.counts["heads read by both"] += 1

    def _sorted(self, rows: list[Row]) -> list[Row]:
        rid = self._rid()
        return sorted(rows, key=lambda row: row[rid])

    def _same(self, who: str, got: list[Row], expected: list[Row]) -> None:
        if got == expected:
            return
        rid = self._rid()
        mine, other = {row[rid]: row for row in got}, {row[rid]: row for row in expected}
        differ = [
            f"row {key}: {mine.get(key)} instead of {other.get(key)}"
            for key in sorted(mine.keys() | other.keys())
            if mine.get(key) != other.get(key)
        ]
        raise MismatchError(
            f"{who} {len(got)} rows instead of {len(expected)}: " + "; ".join(differ[:3])
        )

    def _compare_schema(self) -> None:
        theirs = self._both.java("metadata")["schema"]["fields"]
        ours = json.loads(self._both.schema_of().model_dump_json())["fields"]
        if json.dumps(theirs, sort_keys=True) != json.dumps(ours, sort_keys=True):
            raise MismatchError(f"schemas differ: {theirs} for Java, {ours} for us")

    def _compare_filter(self) -> None:
        rows = list(self._rows.values())
        chosen = random_filter(self.random, self._both.schema_of(), rows)
        expected = self._sorted([row for row in rows if chosen.means(row)])
        got = self._sorted(self._both.our_rows(where=chosen.ours))
        self._same(f"where {chosen.ours} we read", got, expected)
        if not self._java_reads:
            return
        if any("uuid" in label for label in chosen.labels) and self._both.java_wrote():
            self.counts["filters on uuids in files of Java's, which Java itself misreads"] += 1
            return
        rid = self._rid()
        try:
            theirs = self._both.java_rows(java_filter=chosen.java)
        except JudgeError as error:
            if "NullPointerException" not in error.message or "starts-with" not in str(chosen.java):
                raise
            self.counts["filters that Java fails on: prefixes of null"] += 1
            return
        # Java takes null for less than all, in partitions too: it plans the files of null, but of
        # the manifests with their deletes only those whose range fits, and shows deleted rows.
        deleted = [row for row in theirs if row not in rows and chosen.means_to_java(row) is None]
        self.counts["deleted rows that Java shows: null beside <"] += len(deleted)
        found = {row[rid] for row in theirs if row not in deleted}
        for row in rows:
            truth = chosen.means_to_java(row)
            if truth is not None and truth != (row[rid] in found):
                raise MismatchError(
                    f"where {chosen.java} Java {'keeps' if not truth else 'loses'} {row}"
                )
        self.counts["filters"] += 1
        for label in chosen.labels:
            self.counts.update(f"  filters with {word}" for word in label.split())

    def _compare_lineage(self) -> None:
        if self.version < 3 or not self._rows or not self._java_reads:
            return
        # before the first snapshot of v3 there are no row ids; Java knows no changes then either
        ours, theirs = (
            {rid: known if known[0] is not None else (None, None) for rid, known in one.items()}
            for one in (self._both.our_lineage(), self._both.java_lineage(self._rid()))
        )
        if ours != theirs:
            differ = [
                (rid, ours[rid], theirs.get(rid)) for rid in ours if ours[rid] != theirs.get(rid)
            ]
            raise MismatchError(f"row lineage (row, ours, Java's): {differ[:5]}")
        ids = [row_id for row_id, _ in ours.values()]
        if None not in ids and len(set(ids)) != len(ids):
            raise MismatchError(f"row ids twice: {sorted(ids)}")
        for rid, known in ours.items():
            before = self._ids.get(rid)
            untouched = before is not None and None not in before and rid not in self._touched
            if untouched and before != known:
                raise MismatchError(f"row {rid} was {before} and is {known}, untouched")
            kept = before is not None and before[0] is not None and rid in self._upserted
            if kept and (before[0] != known[0] or before[1] == known[1]):
                raise MismatchError(f"row {rid} was {before} and is {known}, upserted")
        self._ids = dict(ours)
        self.counts["lineages compared"] += 1

    def _compare_snapshots(self) -> None:
        for snapshot_id, rows in self._snapshots.items():
            expected = self._sorted(rows)
            self._same(
                f"of {snapshot_id} we read",
                self._sorted(self._both.our_rows(snapshot_id)),
                expected,
            )
            self._compare_snapshot_with_java(snapshot_id, expected)

    def _compare_snapshot_with_java(self, snapshot_id: int, expected: list[Row]) -> None:
        got = self._sorted(self._both.java_rows(snapshot_id))
        self._same(f"of {snapshot_id} Java reads", got, expected)
        self.counts["snapshots read by both"] += 1
