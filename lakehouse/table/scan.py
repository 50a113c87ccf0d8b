"""Time travel, and scans: of one snapshot, of appends, and of changed rows between two."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.catalog.catalog_protocol import ServerPlanner
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.data.reading.changelog_rows import read_changelog
from lakehouse.data.reading.scan_reader import ReadRequest, read_table, read_tasks
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.filter_binding import Where, bind, refuse_metadata_columns
from lakehouse.expressions.filter_text import describe
from lakehouse.scan.changelog_plan import ChangelogStep, plan_changelog
from lakehouse.scan.planner import ScanPlan, ScanRequest, plan_appends, plan_scan, project_schema
from lakehouse.scan.reports.listeners import ENGINE_ARROW, Listeners
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, RUN_ID, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.metadata.unified_partition import metadata_columns
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS, PARTITION, paths_of
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.served_plan import plan_at_server
from lakehouse.table.times import Moment, to_ms


@dataclass(frozen=True, slots=True)
class Point:
    """A snapshot, and whether it is read with the table's current schema or its own.

    Attributes:
        snapshot_id: None is the head of main.
        current_schema: for `ScanRequest`.
    """

    snapshot_id: int | None
    current_schema: bool = False


def point_of(
    metadata: TableMetadata,
    table: str,
    *,
    snapshot_id: int | None,
    as_of: Moment | None,
    ref: str,
    run: str | None,
) -> Point:
    """The snapshot to read, from an id, time, ref or run.

    Raises:
        InvalidInputError: more than one of `snapshot_id`, `as_of` and `run`, or a `ref` beside a
            snapshot that is named already.
        NoSuchSnapshotError | NoSuchRefError: nothing there.
    """
    if sum(choice is not None for choice in (snapshot_id, as_of, run)) > 1:
        raise InvalidInputError(
            f"scan of {table}: give one of snapshot_id, as_of and run, not both", table=table
        )
    if ref != MAIN_BRANCH and (snapshot_id is not None or run is not None):
        raise InvalidInputError(
            f"scan of {table}: give a ref, or one of snapshot_id and run, not both", table=table
        )
    if snapshot_id is not None:
        return Point(metadata.snapshot(snapshot_id).snapshot_id)
    if as_of is not None:
        return Point(metadata.snapshot_as_of(to_ms(as_of), ref).snapshot_id)
    if run is not None:
        return Point(snapshot_of_run(metadata, run).snapshot_id)
    return point_of_ref(metadata, ref)


def point_of_ref(metadata: TableMetadata, ref: str) -> Point:
    """The head of a branch, or a tag. Raises NoSuchRefError."""
    if ref == MAIN_BRANCH:
        return Point(None, current_schema=True)
    named = metadata.ref(ref)
    return Point(named.snapshot_id, current_schema=named.type == "branch")


def chosen_point(metadata: TableMetadata, table: str, snapshot_id: int | None, ref: str) -> Point:
    """A snapshot that is named by its id, or by a branch or tag.

    Raises:
        InvalidInputError: both are given.
        NoSuchRefError: no such branch or tag.
    """
    if snapshot_id is not None and ref != MAIN_BRANCH:
        raise InvalidInputError(
            f"{table}: name the snapshot by id, {snapshot_id}, or by ref, {ref!r}, not by both",
            table=table,
        )
    return point_of_ref(metadata, ref) if snapshot_id is None else Point(snapshot_id)


def snapshot_of_run(metadata: TableMetadata, run_id: str) -> Snapshot:
    """The last snapshot that a Dagster run wrote, on whatever branch.

    Raises NoSuchSnapshotError.
    """
    wanted = run_id.encode()
    written: list[Snapshot] = []
    if any(wanted in part for part in metadata.snapshots.raw_parts()):
        written = [
            snapshot for snapshot in metadata.snapshots if snapshot.summary.get(RUN_ID) == run_id
        ]
    if not written:
        raise NoSuchSnapshotError(
            f"Table {metadata.location} has no snapshot of Dagster run {run_id!r}: it wrote none, "
            "or it has been expired.",
            run_id=run_id,
        )
    return max(written, key=lambda snapshot: snapshot.sequence_number)


@dataclass(frozen=True, repr=False)
class TableScan:
    """Rows of one snapshot that match a filter; it reads nothing before a method asks for rows.

    >>> import polars as pl
    >>> pl.DataFrame(events.scan(where="user_id = 1", select="amount"))["amount"].sum()
    40.0
    >>> import duckdb
    >>> scan = events.scan()
    >>> duckdb.sql("select user_id, sum(amount) from scan group by all order by all").fetchall()
    [(1, 40.0), (2, 20.0)]

    Attributes:
        name: the table's dotted name.
        request: snapshot, filter and projection as data.
        storage: where the files are.
        appended_after: only rows that appends added after this snapshot; None for all rows.
        listeners: get one report, when the scan is planned.
        limit: most rows to read; None is all of them. Which ones, is not said.
        planner: the catalog's server, where it plans; None: manifests are read.
        held: the version scanned; None: nobody knows what becomes of it.
        only: locations of the data files to read, of those that are planned; None: all.
    """

    name: str
    request: ScanRequest
    storage: Storage
    appended_after: int | None = None
    listeners: Listeners = field(default_factory=Listeners, compare=False)
    limit: int | None = None
    planner: ServerPlanner | None = field(default=None, compare=False)
    held: HeldVersion | None = field(default=None, compare=False)
    only: frozenset[str] | None = None

    @property
    def _tasks(self) -> Sequence[FileScanTask]:
        only, tasks = self.only, self._plan.tasks
        if only is None:
            return tasks
        return [task for task in tasks if task.data_file.file_path in only]

    @cached_property
    def _plan(self) -> ScanPlan:
        with self._reading():
            if self.planner is not None:
                after = self.appended_after
                plan = plan_at_server(self.request, self.planner, appended_after=after)
            elif self.appended_after is not None:
                plan = plan_appends(self.request, self.appended_after, self.storage)
            else:
                plan = plan_scan(self.request, self.storage)
        self.listeners.planned(self.name, plan.report, engine=ENGINE_ARROW)
        return plan

    def __repr__(self) -> str:
        where = "" if self.request.where is None else f", where={_text(self.request.where)!r}"
        select = "" if self.request.select is None else f", select={list(self.request.select)}"
        limit = "" if self.limit is None else f", limit={self.limit}"
        snapshot = self.request.snapshot_id or self.request.metadata.current_snapshot_id
        return f"TableScan({self.name!r}, snapshot={snapshot}{where}{select}{limit})"

    def plan(self) -> ScanPlan:
        """The files that may hold rows: `.files`, `.tasks`, `.report` (what was skipped, and why).

        >>> plan = events.scan(where="event_ts < '2026-06-02'").plan()
        >>> len(plan.files), plan.report.data_files.total
        (1, 2)

        A limit does not change the plan: the rows come from the first of these files.
        """
        return self._plan

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in memory.

        >>> events.scan(select=["user_id"]).to_arrow().to_pydict()
        {'user_id': [1, 2, 1]}
        """
        if self.limit is not None:
            return self.to_batches().read_all()
        with self._reading():
            return read_table(self._tasks, self._read_request(), self.storage)

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream with bounded memory.

        >>> sum(batch.num_rows for batch in events.scan().to_batches())
        3

        Reading begins with the first batch. Files and threads are released after the last one, or
        as soon as the stream is garbage collected.
        """
        schema = schema_to_arrow(self._plan.schema)
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, which Polars, pandas, DuckDB and pyarrow take as it is.

        https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
        """
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_dataset(self) -> Any:
        """The rows as a `pyarrow.dataset.Dataset`, for engines that ask for columns and filters.

        >>> import duckdb
        >>> import polars as pl
        >>> import pyarrow.compute as pc
        >>> dataset = events.scan().to_dataset()
        >>> dataset.to_table(columns=["amount"], filter=pc.field("user_id") == 2).to_pydict()
        {'amount': [20.0]}
        >>> duckdb.sql("select sum(amount) from dataset where user_id = 1").fetchall()
        [(40.0,)]
        >>> pl.scan_pyarrow_dataset(dataset).filter(pl.col("user_id") == 1).collect().height
        2

        Each query is planned with its own columns and filter: partitions, bounds and statistics of
        row groups skip files and row groups, deletes are applied. The dataset may be queried again
        and again; it reads the snapshot of this scan. What pyarrow's own datasets have beside
        `schema`, `scanner`, `to_table`, `to_batches`, `head`, `take`, `count_rows` and
        `get_fragments` raises UnsupportedFeatureError.
        """
        # pyarrow's datasets take longer to import than most scans to plan
        from lakehouse.table.scan_dataset import ScanDataset  # noqa: PLC0415

        return ScanDataset(self)

    def to_duckdb(self, connection: Any = None) -> Any:
        """The rows as a relation of DuckDB, which reads most files itself.

        >>> rows = events.scan().to_duckdb()
        >>> rows.aggregate("user_id, sum(amount) as total").order("user_id").fetchall()
        [(1, 40.0), (2, 20.0)]
        >>> import duckdb
        >>> duckdb.sql("select max(amount) from rows where user_id = 1").fetchall()
        [(30.0,)]

        DuckDB gets the paths of Parquet files on this machine's disks whose columns are exactly the
        table's, and the positions of deleted rows in them; for all other files, as for those with
        equality deletes or NaN, the dataset of `to_dataset`. It sees the rows of this scan's
        snapshot, in no order that is promised. This call decides which files are read: a filter
        that should skip files by partition belongs into the scan as well as into the query. Nobody
        checks the checksums of pages that DuckDB reads.

        Args:
            connection: of DuckDB; its default one when None. One without access to files cannot
                read them: it takes `to_dataset()`.
        """
        from lakehouse.table.engine_scans import duckdb_relation  # noqa: PLC0415 - loads pyarrow's

        return duckdb_relation(self, connection)

    def to_lazyframe(self) -> Any:
        """The rows as a `polars.LazyFrame`, whose queries read most files by Polars' own reader.

        >>> import polars as pl
        >>> rows = events.scan().to_lazyframe()
        >>> rows.filter(pl.col("user_id") == 1).select(pl.col("amount").sum()).collect().item()
        40.0

        Polars gets the paths of the same files as DuckDB in `to_duckdb`, and leaves out deleted
        rows in the same way; it reads all others from the dataset of `to_dataset`.
        """
        from lakehouse.table.engine_scans import lazyframe  # noqa: PLC0415 - loads pyarrow's

        return lazyframe(self)

    def to_polars(self) -> Any:
        """All rows as a `polars.DataFrame`; imports Polars on first use.

        >>> events.scan(where="amount > 15").to_polars().height
        2
        """
        return importlib.import_module("polars").from_arrow(self.to_arrow())

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`. Raises ImportError without pandas.

        Columns of integers with nulls have pandas' nullable types, such as `Int64`.

        >>> events.scan(where="amount > 15").to_pandas()["amount"].tolist()
        [20.0, 30.0]
        """
        table = self.to_arrow()
        frame, frame_library = table.to_pandas(), importlib.import_module("pandas")
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and pa.types.is_integer(column.type):
                # doubles would round beyond 2^53
                kind = getattr(frame_library, f"Int{column.type.bit_width}Dtype")()
                frame[name] = column.to_pandas(types_mapper=lambda _, kind=kind: kind)
        return frame

    def to_spark(self, spark: object) -> object:
        """A Spark DataFrame over the snapshot.

        Every query that uses it is planned again with its own filters.

        >>> events.scan(where="amount > 15").to_spark(spark).count()
        2

        Raises:
            InvalidInputError: `spark` is not a SparkSession, or this is a scan of appends.
        """
        if self.appended_after is not None:
            raise InvalidInputError(
                f"{self.name}: Spark reads whole snapshots; read a scan of appends with "
                "to_batches()"
            )
        engine = engine_for(spark)
        if engine is None:
            raise InvalidInputError(f"to_spark takes a SparkSession, not {type(spark).__name__}")
        return engine.read(
            self.name, self.request, self.storage, spark, self.listeners, limit=self.limit
        )

    def count(self) -> int:
        """The exact number of rows.

        >>> events.scan().count(), events.scan(where="user_id = 1").count()
        (3, 2)
        >>> events.scan(limit=1).count()
        1

        Files whose rows all match by partition or bounds are counted from metadata, unless they
        have deletes other than a deletion vector. For the other files, only the deletes and the
        columns of the filter are read. If `_deleted` is selected, deleted rows count too.
        """
        deleted = METADATA_COLUMNS["_deleted"]
        shown = self._plan.schema.find_column_name(deleted.field_id) is not None
        most = math.inf if self.limit is None else self.limit
        rows = 0
        unsure = []
        for task in self._certain_tasks():
            if rows >= most:
                break
            if self.only is not None and task.data_file.file_path not in self.only:
                continue
            certain = task.data_file.record_count if shown else task.live_rows
            if task.residual != TRUE or certain is None:
                unsure.append(task)
            else:
                rows += certain
        least = read_request(self.request, Schema(deleted if shown else METADATA_COLUMNS["_pos"]))
        reading = closing(read_tasks(unsure, least, self.storage))
        with self._reading(), reading as batches:
            while rows < most and (batch := next(batches, None)) is not None:
                rows += batch.num_rows
        return rows if self.limit is None else min(rows, self.limit)

    def _certain_tasks(self) -> Iterator[FileScanTask]:
        """The tasks, without the filter where metrics prove that all rows of the file match."""
        request = self.request
        schema = request.schema
        where = bind(request.where, schema, case_sensitive=request.case_sensitive)
        if where == TRUE:
            yield from self._plan.tasks
            return
        proven = self._plan.all_rows_match(where, types_of(request.metadata))
        for task, certain in zip(self._plan.tasks, proven, strict=True):
            yield replace(task, residual=TRUE) if certain else task

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._reading():
            yield from self._read_batches()

    def _read_batches(self) -> Iterator[pa.RecordBatch]:
        request = self._read_request()
        if self.limit is None:
            yield from read_tasks(self._tasks, request, self.storage)
            return
        left = self.limit
        small = replace(request, batch_rows=max(1, min(request.batch_rows, left)))
        with closing(read_tasks(enough(self._tasks, left), small, self.storage)) as batches:
            while left and (batch := next(batches, None)) is not None:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)

    def _reading(self) -> AbstractContextManager[None]:
        """Within, files of the snapshots are read. Raises SnapshotExpiredError."""
        if self.held is None:
            return nullcontext()
        if self.appended_after is not None:
            return self.held.reading()
        return self.held.reading(
            self.request.snapshot_id or self.request.metadata.current_snapshot_id
        )

    def _read_request(self) -> ReadRequest:
        return read_request(self.request, self._plan.schema)


def enough(tasks: Iterable[FileScanTask], limit: int) -> Iterator[FileScanTask]:
    """The first tasks, up to the one with which so many rows are certain."""
    rows = 0
    for task in tasks:
        if rows >= limit:
            return
        yield task
        if task.residual == TRUE:
            rows += task.live_rows or 0


def checked_limit(limit: int | None, table: str) -> int | None:
    """A limit as it was given. Raises InvalidInputError for what is no number of rows."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInputError(
            f"{table}: limit is a number of rows, 0 or more, not {limit!r}", table=table
        )
    return limit


def _text(where: Where) -> str:
    return describe(where) if isinstance(where, Bound) else str(where)


def update_keys(
    schema: Schema, table: str, updates: bool | str | Sequence[str], *, net: bool
) -> tuple[int, ...]:
    """Ids of the fields that tell which row became which, as `Table.changelog` takes them.

    Raises:
        InvalidInputError: there are none, one is no column, or lies in a list or map; or `net`,
            which says nothing about each snapshot.
    """
    if not updates:
        return ()
    if net:
        raise InvalidInputError(
            f"{table}: updates are those of each snapshot, and net changes have none: leave one "
            "out",
            table=table,
        )
    given = None if isinstance(updates, bool) else columns(updates)
    keys = sorted(schema.identifier_field_names()) if given is None else given
    known = {schema.find_column_name(field_id): field_id for field_id in sorted(paths_of(schema))}
    unknown = [name for name in keys if name not in known]
    if unknown or not keys:
        raise InvalidInputError(
            f"{table}: an update is a row that went and one that came with the same "
            f"{', '.join(unknown) or 'key, and the table has no identifier fields: name columns'}; "
            f"columns are {', '.join(name for name in known if name)}",
            table=table,
        )
    return tuple(known[name] for name in keys)


def columns(select: Sequence[str] | str | None) -> Sequence[str] | None:
    """A projection as a sequence: one name, several, or None for all of them."""
    return [select] if isinstance(select, str) else select


def read_request(request: ScanRequest, schema: Schema) -> ReadRequest:
    """What the reader has to know to return the columns of `schema`.

    The filter is in the residuals of the tasks.
    """
    at_snapshot = request.schema
    return ReadRequest.of(request.metadata, schema, table_schema=at_snapshot)


@dataclass(frozen=True)
class Changelog:
    """Rows inserted and deleted after one snapshot, up to another; read on demand.

    >>> changes = events.changelog()
    >>> changes.to_arrow()["_change_type"].to_pylist()
    ['INSERT', 'INSERT', 'INSERT']

    Attributes:
        request: the later snapshot, whose schema all rows are read with, filter and projection.
        storage: where the files are.
        from_snapshot_id: the earlier snapshot, exclusive; None for the beginning.
        net: whether rows inserted and deleted within the range are left out.
        same: ids of the fields by which a row that went and one that came are an update.
        held: the version read; None: nobody knows what becomes of it.
    """

    request: ScanRequest
    storage: Storage
    from_snapshot_id: int | None
    net: bool = False
    same: tuple[int, ...] = ()
    held: HeldVersion | None = field(default=None, compare=False)

    def plan(self) -> list[ChangelogStep]:
        """The snapshots that changed rows, oldest first, with the files to compare.

        Raises NoSuchSnapshotError.

        >>> _ = events.append(more)
        >>> len(events.changelog().plan())
        2
        """
        with self._reading():
            return plan_changelog(
                self.request.metadata, self.from_snapshot_id, self.request.snapshot_id, self.storage
            )

    def to_arrow(self) -> pa.Table:
        """The rows, followed by `_change_type`, `_change_ordinal` and `_commit_snapshot_id`.

        The type is INSERT or DELETE, of an update (see `changelog`) UPDATE_BEFORE or UPDATE_AFTER;
        ordinals count the snapshots.

        Raises InvalidInputError where updates cannot be told: several rows of one key came, or
        went, in one snapshot.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.append(more)
        >>> events.changelog(first).to_arrow()["amount"].to_pylist()
        [40.0]
        """
        schema = self.request.schema
        select = self.request.select
        beside = metadata_columns(self.request.metadata, select)
        projected = project_schema(
            schema,
            select,
            case_sensitive=self.request.case_sensitive,
            beside={name: field for name, field in beside.items() if name == PARTITION.name},
        )
        where = bind(self.request.where, schema, case_sensitive=self.request.case_sensitive)
        refuse_metadata_columns(where, "a changelog")
        reading = replace(read_request(self.request, projected), where=where)
        with self._reading():
            return read_changelog(self.plan(), reading, self.storage, net=self.net, same=self.same)

    def _reading(self) -> AbstractContextManager[None]:
        return nullcontext() if self.held is None else self.held.reading()
