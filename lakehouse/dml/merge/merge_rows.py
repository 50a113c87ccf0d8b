"""Running a MERGE or an UPDATE: which rows go, and which come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.data.writing.input_columns import coerce
from lakehouse.dml.merge.merge_binding import BoundClause, BoundMerge
from lakehouse.dml.merge.source_match import Pairs, Rows, SourceMatcher
from lakehouse.dml.merge.term_columns import PairedRows
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.filter_terms import Term
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import fields_by_id
from lakehouse.spec.schema.metadata_columns import ROW_ID, with_lineage
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.conflicts.key_test import KeyTest

# beside columns of the table, which may have any name
POSITION = NestedField(
    METADATA_COLUMNS["_pos"].field_id, "_pos of the file", LongType(), required=True
)
_ROW_ID = NestedField(METADATA_COLUMNS[ROW_ID].field_id, "_row_id of the row", LongType())
Positions = npt.NDArray[np.int64]


@dataclass(slots=True)
class RowChanges:
    """What a MERGE or UPDATE does to the rows of one version of a table.

    Attributes:
        conflict_filter: passes every row that, had it been there, might have changed the outcome.
        keys: which of these rows would have; None is all of them.
        gone: files as they were planned, with the positions of rows that are deleted or replaced.
        seen: files as they were planned, with the positions of rows that stay as they are, and for
            which a source row was not inserted.
        rows: new rows, and new versions of rows, in the table's schema (with row lineage from v3).
        updated: how many rows have a new version.
        deleted: how many rows go without one.
        inserted: how many rows are new.
        opened: data files that may hold rows it is about, and were read.
        passed_over: how many source rows matched, without any clause acting on the match.
    """

    conflict_filter: Bound = TRUE
    gone: list[tuple[FileScanTask, Positions]] = field(default_factory=list)
    seen: list[tuple[FileScanTask, Positions]] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    opened: list[DataFile] = field(default_factory=list)
    keys: KeyTest | None = None
    passed_over: int = 0

    def __bool__(self) -> bool:
        return bool(self.gone or self.rows)


class TargetRows:
    """The rows of one version of a table, file by file.

    Args:
        metadata: the version.
        snapshot_id: the snapshot whose rows are looked at; None is an empty table.
        storage: where the files are.
        table: its name, for messages.
    """

    def __init__(
        self, metadata: TableMetadata, snapshot_id: int | None, storage: Storage, table: str
    ) -> None:
        self.metadata = metadata
        self.schema = metadata.schema()
        self.table = table
        self._snapshot_id = snapshot_id
        self._storage = storage
        self._stored = with_lineage(self.schema, metadata.format_version)
        self._lineage = [one.name for one in self._stored.fields[len(self.schema.fields) :]]

    def tasks(
        self, where: Bound, choose: Callable[..., Sequence[FileScanTask]] | None = None
    ) -> Iterator[FileScanTask]:
        """The files that may hold rows that pass; `choose` takes some of a plan's."""
        if self._snapshot_id is None:
            return
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=self._snapshot_id,
            current_schema=True,
            where=where,
            include_metrics=True,
        )
        plan = plan_scan(request, self._storage)
        yield from plan.tasks if choose is None else choose(plan)

    def read(self, task: FileScanTask, field_ids: Iterable[int], where: Bound = TRUE) -> pa.Table:
        """The live rows of a file, in their order: whole top-level columns, `_pos` and lineage."""
        wanted = set(field_ids)
        fields = [
            one for one in self.schema.fields if wanted & fields_by_id(StructType(one)).keys()
        ]
        lineage = [_ROW_ID] if self._lineage else []
        wanted_columns = Schema(*fields, *lineage, POSITION)
        read = ReadRequest.of(self.metadata, wanted_columns, where=where)
        return read_table([replace(task, residual=TRUE)], read, self._storage)

    def changed(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New versions of rows: assigned columns from `values`, others as they are."""
        old = _of(rows)
        columns = {
            one.name: rows.values(values[one.name]) if one.name in values else old[one.name]
            for one in self.schema.fields
        }
        if self._lineage:  # the row keeps its id; null is the number of the commit
            columns[self._lineage[0]] = old[_ROW_ID.name]
        yield from self._fitting(columns)

    def new(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New rows; columns without a value have their default."""
        yield from self._fitting({name: rows.values(one) for name, one in values.items()})

    def _fitting(self, columns: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        yield from coerce(pa.table(dict(columns)), self._stored, table=self.table)

    @property
    def every_column(self) -> set[int]:
        """Field ids of all top-level columns."""
        return {one.field_id for one in self.schema.fields}


def update_rows(target: TargetRows, where: Bound, values: Mapping[str, Term]) -> RowChanges:
    """New versions of the rows that pass `where`.

    Raises InvalidExpressionError, InvalidSchemaError.
    """
    changes = RowChanges(where)
    for task in target.tasks(where):
        changes.opened.append(task.data_file)
        found = target.read(task, target.every_column, where)
        if not found.num_rows:
            continue
        rows = PairedRows(found.num_rows, found, schema_of_rows(target, found), None, Schema())
        changes.rows += target.changed(rows, values)
        changes.gone.append((task, _positions(found)))
        changes.updated += found.num_rows
    return changes


def merge_rows(target: TargetRows, merge: BoundMerge, source: pa.Table) -> RowChanges:
    """What a MERGE does.

    The source is held in memory, and of the target one file at a time: its key columns, and what
    the clauses name where something matched.

    Raises:
        InvalidInputError: several source rows would change one row of the target.
        InvalidExpressionError | InvalidSchemaError: a value cannot be computed, or does not fit.
    """
    matcher = SourceMatcher(merge, source)
    repeated = matcher.repeated() if merge.unique_source else None
    if repeated is not None:
        raise InvalidInputError(
            f"Table {target.table}: {repeated[0]} rows of the data share their key with another, "
            f"such as {repeated[1]}: leave one row a key",
            table=target.table,
            key=repeated[1],
        )
    whole = bool(merge.about("not matched by source"))
    changes = (
        RowChanges() if whole else RowChanges(matcher.conflict_filter(), keys=matcher.key_test())
    )
    matched, acted = np.zeros(source.num_rows, bool), np.zeros(source.num_rows, bool)
    choose = None if whole else matcher.tasks
    if source.num_rows or whole:
        tasks = target.tasks(changes.conflict_filter, choose)
        for met in _met(target, merge, matcher, tasks):
            changes.opened.append(met.task.data_file)
            _merge_file(target, merge, source, met, (matched, acted), changes)
    changes.passed_over += int((matched & ~acted).sum())
    rows = PairedRows(source.num_rows, None, merge.target, source, merge.source)
    fresh = rows.take(np.flatnonzero(~matched))
    for clause, at in _acting(merge.about("not matched"), fresh):
        changes.rows += target.new(fresh.take(at), clause.assignments)
        changes.inserted += len(at)
    return changes


@dataclass(frozen=True, slots=True)
class _Met:
    """A file whose key columns were read, with the source rows that its rows match."""

    task: FileScanTask
    keys: pa.Table
    pairs: Pairs


def _met(
    target: TargetRows, merge: BoundMerge, matcher: SourceMatcher, tasks: Iterator[FileScanTask]
) -> Iterator[_Met]:
    """Files in their order; the keys of a few are read at the same time."""
    key_ids = merge.key_columns

    def meet(task: FileScanTask) -> _Met:
        keys = target.read(task, key_ids)
        schema = schema_of_rows(target, keys)
        pairs = matcher.pairs(PairedRows(keys.num_rows, keys, schema, None, merge.source))
        return _Met(task, keys, pairs)

    threads = pa.cpu_count()
    with ThreadPoolExecutor(threads, thread_name_prefix="merge") as pool:
        while group := list(islice(tasks, threads)):
            yield from pool.map(meet, group)


def _merge_file(
    target: TargetRows,
    merge: BoundMerge,
    source: pa.Table,
    met: _Met,
    seen: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    changes: RowChanges,
) -> None:
    """What the clauses about target rows do to the rows of one file.

    `seen` notes the source rows that matched, and those on whose match a clause acted.
    """
    matched, acted = seen
    by_match, by_source = merge.about("matched"), merge.about("not matched by source")
    pairs = met.pairs
    if not len(pairs.target) and not by_source:
        return
    key_ids, needed = merge.key_columns, merge.needed_columns
    rows = met.keys if needed <= key_ids else target.read(met.task, needed | key_ids)
    both = PairedRows(rows.num_rows, rows, schema_of_rows(target, rows), None, merge.source)
    paired = PairedRows(
        len(pairs.target),
        rows.take(pa.array(pairs.target)),
        schema_of_rows(target, rows),
        source.take(pa.array(pairs.source)),
        merge.source,
    )
    together = np.flatnonzero(paired.where(merge.beside))
    paired, pairs = paired.take(together), Pairs(pairs.target[together], pairs.source[together])
    matched[pairs.source] = True
    unmatched = both.take(np.setdiff1d(np.arange(rows.num_rows), pairs.target))
    acting = _acting(by_match, paired)
    _check_one_source_row(target.table, merge, acting, paired, pairs)
    for _, at in acting:
        acted[pairs.source[at]] = True
    updated, deleted = [], []
    for where, found in ((paired, acting), (unmatched, _acting(by_source, unmatched))):
        for clause, at in found:
            these = where.take(at)
            positions = _positions(_of(these))
            if clause.action == "update":
                changes.rows += target.changed(these, clause.assignments)
                updated.append(positions)
            else:
                deleted.append(positions)
    # several source rows may delete one row
    changes.updated += sum(map(len, updated))
    changes.deleted += len(np.unique(np.concatenate(deleted))) if deleted else 0
    gone = np.unique(np.concatenate([np.empty(0, np.int64), *updated, *deleted]))
    if len(gone):
        changes.gone.append((met.task, gone))
    if merge.about("not matched") and paired.count:
        stay = np.setdiff1d(_positions(_of(paired)), gone)
        if len(stay):
            changes.seen.append((met.task, stay))


def _acting(clauses: Sequence[BoundClause], rows: PairedRows) -> list[tuple[BoundClause, Rows]]:
    """Each clause with the rows that it is the first to act on.

    A condition is computed for the rows alone that no clause before it took.
    """
    found: list[tuple[BoundClause, Rows]] = []
    left = np.arange(rows.count)
    for clause in clauses:
        acts = rows.take(left).where(clause.condition)
        if acts.any():
            found.append((clause, left[acts]))
        left = left[~acts]
    return found


def _check_one_source_row(
    table: str,
    merge: BoundMerge,
    acting: Sequence[tuple[BoundClause, Rows]],
    paired: PairedRows,
    pairs: Pairs,
) -> None:
    """Refuse that two source rows update one row, or one updates and one deletes it."""
    at = np.concatenate([np.empty(0, np.int64), *(rows for _, rows in acting)])
    rows, counts = np.unique(pairs.target[at], return_counts=True)
    several = np.isin(pairs.target, rows[counts > 1])
    disputed = [found[several[found]] for clause, found in acting if clause.action == "update"]
    if not any(len(one) for one in disputed):
        return
    first = paired.take(np.concatenate(disputed)[:1])
    key = ", ".join(first.shown(pair.source) for pair in merge.keys)
    raise InvalidInputError(
        f"Table {table}: {len(rows[counts > 1])} rows of one file are matched by several source "
        f"rows that would change them, such as the one with key {key}: leave one source row a "
        "key, or add a condition",
        table=table,
        key=key,
    )


def _of(rows: PairedRows) -> pa.Table:
    if rows.target is None:
        raise AssertionError("rows of the target are asked for where there are none")
    return rows.target


def _positions(rows: pa.Table) -> Positions:
    return np.asarray(rows[POSITION.name]).astype(np.int64)


def schema_of_rows(target: TargetRows, rows: pa.Table) -> Schema:
    """The schema of what was read, in its order."""
    known = {one.name: one for one in (POSITION, _ROW_ID, *target.schema.fields)}
    return Schema(*(known[name] for name in rows.column_names))
