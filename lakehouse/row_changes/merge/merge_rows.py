"""Running a MERGE: which rows go, and which come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.row_changes.merge.key_matching import (
    KeyColumns,
    KeyMarks,
    Pairs,
    Rows,
    SourcePart,
    hashes,
)
from lakehouse.row_changes.merge.key_pruning import KeyRange, files_with_keys, key_test
from lakehouse.row_changes.merge.merge_binding import BoundClause, BoundMerge
from lakehouse.row_changes.merge.source_rows import KeySplit, SourceRows, SpillFile
from lakehouse.row_changes.row_change import RowChange, RowWriter, positions_of
from lakehouse.row_changes.target_rows import PairedRows, TargetRows, empty_rows
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.transaction.decided_rows import KeyTest, Positions

# beside columns of the table, which may have any name; the number is none of Iceberg's
_FILE = NestedField(2_147_000_000, "number of the file", IntegerType(), required=True)
_DECIDED_TOGETHER = 1 << 18
_MOST_PARTS = 256
Noted = dict[int, list[Positions]]
"""Positions by the number of a file."""


def merge_rows(
    target: TargetRows, merge: BoundMerge, source: SourceRows, writer: RowWriter
) -> RowChange:
    """Run a MERGE.

    Of the target the key columns of files that may hold a key are read, batch after batch, and the
    columns that the clauses name where something may match. What may match is decided on by a few
    hundred thousand rows at a time. A source that does not fit in memory is split by its keys into
    files, and so is what may match of the target: part by part is decided on.

    Raises:
        InvalidInputError: several source rows would change one row of the target.
        InvalidExpressionError | InvalidSchemaError: a value cannot be computed, or does not fit.
    """
    return _Merging(target, merge, source, writer).run()


class _Merging:
    """One decision about a source and a target."""

    def __init__(
        self, target: TargetRows, merge: BoundMerge, source: SourceRows, writer: RowWriter
    ) -> None:
        self._target = target
        self._merge = merge
        self._source = source
        self._writer = writer
        self._whole = bool(merge.about("not matched by source"))
        self._key_columns = target.columns(merge.key_columns)
        self._columns = (
            self._key_columns
            if merge.needed_columns <= merge.key_columns
            else target.columns(merge.needed_columns | merge.key_columns)
        )
        self._found_columns = Schema(*self._columns.fields, _FILE)
        self._keys = KeyColumns(merge, self._key_columns)
        self._where: Bound = TRUE
        self._key_test: KeyTest | None = None
        # of parts it is known with the last one alone whether rows are updated
        updates = any(clause.action == "update" for clause in merge.clauses)
        self._may_update = source.parts > 1 and updates
        self._tasks: list[FileScanTask] = []
        self._gone: Noted = {}
        self._read: Noted = {}
        self._inserted = self._updated = self._deleted = self._passed_over = 0

    def run(self) -> RowChange:
        """Decide, and write what that needs."""
        if self._source.parts == 1:
            self._in_memory()
        else:
            self._in_parts()
        for number, (at, positions) in enumerate(_noted(self._gone)):
            self._writer.remove(self._tasks[at], positions, number)
        for at, positions in _noted(self._read):
            self._writer.note_read(self._tasks[at], positions)
        return self._writer.change(
            self._where,
            keys=self._key_test,
            opened=tuple(task.data_file for task in self._tasks),
            inserted=self._inserted,
            updated=self._updated,
            deleted=self._deleted,
            source_rows=self._source.num_rows,
            passed_over=self._passed_over,
        )

    def _in_memory(self) -> None:
        rows = pa.Table.from_batches(self._source.batches(), schema=self._source.rows.schema)
        part = SourcePart(self._keys, rows.combine_chunks())
        self._check_unique(part)
        limits, known = KeyRange(self._merge), KeyMarks(rows.num_rows, self._source.filter_bytes)
        limits.add(part.values)
        known.add(hashes(part.keys))
        if rows.num_rows or self._whole:
            self._conflict(limits, part)
            plan = self._target.plan(self._where)
            tasks: Iterable[FileScanTask] = () if plan is None else plan.tasks
            if plan is not None and not self._whole:
                tasks = files_with_keys(self._target, self._merge, part, plan)
            for together in _together(self._matching(iter(tasks), known)):
                self._decide(part, together)
        self._insert(part)

    def _in_parts(self) -> None:
        files, known, limits = self._split_source()
        self._conflict(limits, known)
        schema = empty_rows(self._found_columns).schema
        split = KeySplit(self._source.folder, "target", schema, len(files))
        for rows in self._matching(self._target.tasks(self._where), known):
            numbers, _ = self._keys.row_numbers(self._keys.of_target(self._alone(rows)))
            split.add(rows, numbers)
        for own, theirs in zip(files, split.close(), strict=True):
            part = SourcePart(self._keys, own.table().combine_chunks())
            self._check_unique(part)
            tables = (pa.Table.from_batches([batch]) for batch in theirs.batches())
            for together in _together(tables):
                self._decide(part, together)
            self._insert(part)

    def _split_source(self) -> tuple[list[SpillFile], KeyMarks, KeyRange]:
        """The source in files of rows that fit in memory, marks of its keys, and their range."""
        source = self._source
        parts = min(source.parts + 1, _MOST_PARTS)
        split = KeySplit(source.folder, "source", source.rows.schema, parts)
        known = KeyMarks(source.num_rows, source.filter_bytes)
        limits = KeyRange(self._merge)
        for batch in source.batches():
            rows = pa.Table.from_batches([batch])
            keys = self._keys.of_source(rows)
            numbers, hashed = self._keys.row_numbers(keys)
            known.add(hashed)
            limits.add(keys)
            split.add(rows, numbers)
        return split.close(), known, limits

    def _conflict(self, limits: KeyRange, known: SourcePart | KeyMarks) -> None:
        """Say which rows of others would have changed the outcome."""
        if not self._whole:
            self._where = limits.filter()
            self._key_test = key_test(self._keys, known)

    def _matching(self, tasks: Iterator[FileScanTask], known: KeyMarks) -> Iterator[pa.Table]:
        """Rows of the target that may match, or all of them where the clauses are about all."""
        threads = pa.cpu_count()
        with ThreadPoolExecutor(threads, thread_name_prefix="merge") as pool:
            while group := list(islice(tasks, threads)):
                first = len(self._tasks)
                self._tasks += group
                if self._whole:
                    for number, task in enumerate(group, first):
                        for batch in self._target.batches(task, self._columns):
                            yield self._numbered([batch], number)
                    continue
                each = max(1, threads // len(group))
                candidates = partial(self._candidates, known=known, threads=each)
                for number, batches in enumerate(pool.map(candidates, group), first):
                    if batches:
                        yield self._numbered(batches, number)

    def _candidates(
        self, task: FileScanTask, known: KeyMarks, threads: int
    ) -> list[pa.RecordBatch]:
        """Rows of a file whose keys may be those of source rows."""
        candidates: list[pa.RecordBatch] = []
        for batch in self._target.batches(task, self._key_columns, threads=threads):
            rows = pa.Table.from_batches([batch])
            alone = self._target.beside_nothing(rows, self._key_columns, self._merge.source)
            keys = self._keys.frame(self._keys.of_target(alone))
            at = keys["row"].to_numpy()[known.may_hold(hashes(keys))]
            if len(at):
                candidates.append(batch.take(pa.array(at)))
        if not candidates or self._columns is self._key_columns:
            return candidates
        wanted = np.concatenate([positions_of(batch) for batch in candidates])
        candidates = []
        for batch in self._target.batches(task, self._columns, threads=threads):
            positions = positions_of(batch)
            at = np.flatnonzero(np.isin(positions, wanted, assume_unique=True))
            if len(at):
                candidates.append(batch.take(pa.array(at)))
        return candidates

    def _numbered(self, batches: Sequence[pa.RecordBatch], number: int) -> pa.Table:
        rows = pa.Table.from_batches(batches)
        return rows.append_column(
            pa.field(_FILE.name, pa.int32(), nullable=False),
            pa.array(np.full(rows.num_rows, number, np.int32)),
        )

    def _alone(self, rows: pa.Table) -> PairedRows:
        return self._target.beside_nothing(rows, self._found_columns, self._merge.source)

    def _check_unique(self, part: SourcePart) -> None:
        repeated = part.repeated() if self._merge.unique_source else None
        if repeated is not None:
            raise InvalidInputError(
                f"Table {self._target.table}: {repeated[0]} rows of the data share their key with "
                f"another, such as {repeated[1]}: leave one row a key",
                table=self._target.table,
                key=repeated[1],
            )

    def _decide(self, part: SourcePart, rows: pa.Table) -> None:
        """Do what the clauses about target rows do to some of them."""
        merge = self._merge
        alone = self._alone(rows)
        pairs = part.pairs(alone)
        paired = PairedRows(
            len(pairs.target),
            rows.take(pa.array(pairs.target)),
            self._found_columns,
            part.rows.take(pa.array(pairs.source)),
            merge.source,
        )
        together = np.flatnonzero(paired.where(merge.beside))
        paired, pairs = paired.take(together), Pairs(pairs.target[together], pairs.source[together])
        part.matched[pairs.source] = True
        acting = _acting(merge.about("matched"), paired)
        self._check_one_source_row(acting, paired, pairs)
        for _, at in acting:
            part.acted[pairs.source[at]] = True
        unmatched = np.empty(0, np.int64)
        if self._whole:
            unmet = np.ones(rows.num_rows, bool)
            unmet[pairs.target] = False
            unmatched = np.flatnonzero(unmet)
        left = alone.take(unmatched)
        by_source = _acting(merge.about("not matched by source"), left)
        gone = np.zeros(rows.num_rows, bool)
        deleted = np.zeros(rows.num_rows, bool)  # several source rows may delete one row
        for where, at, acting_on in ((paired, pairs.target, acting), (left, unmatched, by_source)):
            for clause, chosen in acting_on:
                gone[at[chosen]] = True
                if clause.action == "delete":
                    deleted[at[chosen]] = True
                    continue
                self._updated += len(chosen)
                versions = self._target.changed(where.take(chosen), clause.assignments)
                self._writer.write(versions, versions=True)
        self._deleted += int(deleted.sum())
        _note(self._gone, rows, gone)
        if merge.about("not matched"):
            met = np.zeros(rows.num_rows, bool)
            met[pairs.target] = True
            _note(self._read, rows, met & ~gone)

    def _insert(self, part: SourcePart) -> None:
        """Do what the clauses about source rows do to those that met none."""
        self._passed_over += int((part.matched & ~part.acted).sum())
        unmet = np.flatnonzero(~part.matched)
        left = part.rows.take(pa.array(unmet))
        fresh = PairedRows(left.num_rows, None, self._merge.target, left, self._merge.source)
        for clause, at in _acting(self._merge.about("not matched"), fresh):
            self._inserted += len(at)
            rows = self._target.new(fresh.take(at), clause.assignments)
            self._writer.write(rows, versions=self._may_update)

    def _check_one_source_row(
        self, acting: Sequence[tuple[BoundClause, Rows]], paired: PairedRows, pairs: Pairs
    ) -> None:
        """Refuse that two source rows update one row, or one updates and one deletes it."""
        at = np.concatenate([np.empty(0, np.int64), *(rows for _, rows in acting)])
        rows, counts = np.unique(pairs.target[at], return_counts=True)
        several = np.isin(pairs.target, rows[counts > 1])
        disputed = [hits[several[hits]] for clause, hits in acting if clause.action == "update"]
        if not any(len(rows) for rows in disputed):
            return
        first = paired.take(np.concatenate(disputed)[:1])
        key = ", ".join(first.shown(pair.source) for pair in self._merge.keys)
        table = self._target.table
        raise InvalidInputError(
            f"Table {table}: {len(rows[counts > 1])} rows or more are matched by several source "
            f"rows that would change them, such as the one with key {key}: leave one source row "
            "a key, or add a condition",
            table=table,
            key=key,
        )


def _acting(clauses: Sequence[BoundClause], rows: PairedRows) -> list[tuple[BoundClause, Rows]]:
    """Each clause with the rows that it is the first to act on.

    A condition is computed for the rows alone that no clause before it took.
    """
    acting: list[tuple[BoundClause, Rows]] = []
    left = np.arange(rows.count)
    for clause in clauses:
        acts = rows.take(left).where(clause.condition)
        if acts.any():
            acting.append((clause, left[acts]))
        left = left[~acts]
    return acting


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables of enough rows each to be worth a decision."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(table.num_rows for table in waiting) >= _DECIDED_TOGETHER:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _note(noted: Noted, rows: pa.Table, chosen: np.ndarray) -> None:
    """Add the positions of chosen rows to those of their files."""
    at = np.flatnonzero(chosen)
    files = np.asarray(rows[_FILE.name])[at]
    positions = positions_of(rows)[at]
    for number in np.unique(files):
        noted.setdefault(int(number), []).append(positions[files == number])


def _noted(noted: Noted) -> Iterator[tuple[int, Positions]]:
    """The positions of each file, ascending and distinct, by the number of the file."""
    for number in sorted(noted):
        yield number, np.unique(np.concatenate(noted[number]))
