"""Scan planning: from a scan's request to files that may hold its rows (spec: Scan Planning)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.errors import InvalidSchemaError, NoSuchSnapshotError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.filter_binding import Where, bind, widen
from lakehouse.expressions.filter_text import describe
from lakehouse.expressions.transforms.partition_projection import Residuals
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE, Listed, ManifestCache, size_of
from lakehouse.manifests.manifest_reader import ManifestReader, listed_manifests, load_manifests
from lakehouse.scan.delete_index import DeleteIndex
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.pruning.metadata_aggregates import Aggregate, from_entries
from lakehouse.scan.pruning.surviving_files import (
    ManifestIndex,
    Search,
    Survivors,
    prune_files,
    prune_manifests,
)
from lakehouse.scan.reports.plan_report import PlanReport
from lakehouse.scan.scan_tasks import (
    FileScanTask,
    LazyItems,
    SplitOptions,
    TaskGroup,
    combine,
    total_rows,
)
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import BOUNDS, COUNTS, Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.metadata.unified_partition import metadata_columns
from lakehouse.spec.schema.iceberg_types import FieldTypes, spelled
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage


def _go_on() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A scan as data.

    Attributes:
        metadata: the table version to read.
        snapshot_id: snapshot to read; None is the current one (an empty table has none and plans to
            nothing).
        current_schema: read the snapshot with the table's present schema, as heads of branches are;
            else with its own.
        where: SQL (docs/filters.md), an expression of pyiceberg, None for all rows; or bound to
            the schema already.
        select: column names to project (`a.b` reaches into structs); None is every column.
        case_sensitive: whether names in `where` and `select` must match exactly.
        include_metrics: whether planned files carry column sizes, counts and bounds.
        use_columnar: whether columnar manifests may be used.
        whole_residuals: whether the residual of each task is the whole filter, which is true and
            takes no time.
        checkpoint: called again and again while planning; what it raises ends the plan.
    """

    metadata: TableMetadata
    snapshot_id: int | None = None
    current_schema: bool = False
    where: Where = None
    select: Sequence[str] | None = None
    case_sensitive: bool = True
    include_metrics: bool = False
    use_columnar: bool = True
    whole_residuals: bool = False
    checkpoint: Callable[[], None] = field(default=_go_on, compare=False)

    @property
    def snapshot(self) -> Snapshot | None:
        """What is read; None for the current one of an empty table. Raises NoSuchSnapshotError."""
        if self.snapshot_id is not None:
            return self.metadata.snapshot(self.snapshot_id)
        return self.metadata.current_snapshot()

    @property
    def schema(self) -> Schema:
        """The snapshot's schema if its id selects it, else the table's current schema.

        Raises NoSuchSnapshotError.
        """
        snapshot = self.snapshot
        if self.snapshot_id is None or self.current_schema or snapshot is None:
            return self.metadata.schema()
        return self.metadata.schema_for(snapshot)


PLAN_COLUMNS = (
    "status",
    "sequence_number",
    "content",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "split_offsets",
    "sort_order_id",
    "first_row_id",
    "key_metadata",
)
_PLAN_BYTES = 16_384
"""What a plan takes beside its entries: schema, report, filter."""


@dataclass(frozen=True)
class ScanPlan:
    """The files to read, and what planning read and skipped.

    Attributes:
        snapshot_id: snapshot planned; None for an empty table.
        schema: projected schema, columns in the order of the table.
        report: what was read and skipped.
        files: data files that may match, made when looked at.
        tasks: one a data file, in the same order, with deletes and residual, made when looked at.
        split_options: how `splits` cuts and packs.
    """

    snapshot_id: int | None
    schema: Schema
    report: PlanReport
    files: Sequence[DataFile]
    tasks: Sequence[FileScanTask]
    split_options: SplitOptions

    def locations(self) -> pa.Table:
        """Columns `file_path`, `file_size_in_bytes`, `record_count`; no file objects are made."""
        schema = pa.schema(
            [
                ("file_path", pa.string()),
                ("file_size_in_bytes", pa.int64()),
                ("record_count", pa.int64()),
            ]
        )
        return pa.concat_tables(
            [
                schema.empty_table(),
                *(part.table.select(schema.names).cast(schema) for part in self._parts),
            ]
        )

    def aggregates(self, aggregates: Sequence[Aggregate]) -> list[int | None]:
        """Aggregates over all rows, see `from_entries`; deletion vectors tell how many are left.

        Raises:
            LookupError: metadata does not tell one of them.
        """
        if not self.report.delete_files.planned:
            return from_entries(self._parts, aggregates)
        rows = total_rows([task.live_rows for task in self.tasks])
        if rows is None or any(aggregate.function != "rows" for aggregate in aggregates):
            raise LookupError("rows are deleted")
        return [rows] * len(aggregates)

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory as long as no file or task is made."""
        return _PLAN_BYTES + sum(size_of(part.table) for part in self._parts)

    def forget(self) -> None:
        """Keep no file or task that was made; those that are looked at again are made again."""
        for items in (self.files, self.tasks):
            if isinstance(items, LazyItems):
                items.forget()

    @property
    def _parts(self) -> Sequence[Entries]:
        return self.files.parts if isinstance(self.files, LazyItems) else ()

    def formats(self) -> set[str]:
        """File formats of the files, lower case, without making the files themselves."""
        return {
            str(file_format).lower()
            for part in self._parts
            for file_format in pc.unique(part.table["file_format"]).to_pylist()
        }

    def all_rows_match(self, where: Bound, types: FieldTypes) -> list[bool]:
        """For each file whether its partition and its bounds prove that every row matches.

        Args:
            where: the filter of the plan, for the metrics of its columns alone are at hand.
            types: of all fields that the table ever had.
        """
        wide = widen(where, types)
        return [bool(matches) for part in self._parts for matches in must_match(part, wide, types)]

    def splits(self) -> Iterator[TaskGroup]:
        """Tasks cut at split offsets, packed to `read.split.target-size` (`read.split.*`)."""
        return combine(self.tasks, self.split_options)


def plan_scan(
    request: ScanRequest,
    storage: Storage,
    *,
    cache: ManifestCache | None = DEFAULT_CACHE,
    among: Callable[[ManifestFile], bool] | None = None,
) -> ScanPlan:
    """Plan a scan.

    Keeps every file that may hold a row for which `where` is true; unknown metrics keep the file.
    Columnar manifests answer where there are any, else entries that `cache` holds (None: it holds
    none; bytes and manifest lists have one cache for all), else Avro is decoded; the report says
    which. `among`: the manifests to look at, where not all are.

    Raises:
        InvalidExpressionError: the filter does not parse or bind.
        InvalidSchemaError: `select` names no column.
        NoSuchSnapshotError: the snapshot does not exist.
        CorruptMetadataError: a manifest or manifest list is damaged.
    """
    snapshot = request.snapshot
    if snapshot is None:
        return _plan(request, storage, cache, None, Listed)

    def listed() -> Listed:
        every = listed_manifests(storage, snapshot)
        return every if among is None else Listed(filter(among, every))

    return _plan(request, storage, cache, snapshot, listed)


def plan_appends(
    request: ScanRequest,
    from_snapshot_id: int,
    storage: Storage,
    *,
    cache: ManifestCache | None = DEFAULT_CACHE,
) -> ScanPlan:
    """Plan what append snapshots added after `from_snapshot_id`, up to the snapshot of the request.

    Files that were compacted away since are planned as they were appended; overwrites, deletes and
    rewrites between are passed over, and no deletes are attached.

    Raises:
        NoSuchSnapshotError: `from_snapshot_id` is no ancestor (any more) of the snapshot of the
            request.
        InvalidExpressionError, InvalidSchemaError, CorruptMetadataError: see `plan_scan`.
    """
    snapshot = request.snapshot
    between = snapshots_after(
        request.metadata, None if snapshot is None else snapshot.snapshot_id, from_snapshot_id
    )
    appends = [snapshot for snapshot in between if snapshot.operation == OPERATION_APPEND]

    def added() -> Listed:
        listed = [
            (append, manifest)
            for append in reversed(appends)
            for manifest in load_manifests(storage, append)
        ]
        of_data = [
            (append, manifest)
            for append, manifest in listed
            if manifest.content == CONTENT_DATA_MANIFEST
        ]
        return Listed(
            manifest
            for append, manifest in of_data
            if manifest.added_snapshot_id == append.snapshot_id
        )

    return _plan(
        request,
        storage,
        cache,
        snapshot,
        added,
        added_by=frozenset(append.snapshot_id for append in appends),
    )


def snapshots_after(
    metadata: TableMetadata, snapshot_id: int | None, from_snapshot_id: int
) -> list[Snapshot]:
    """The snapshots from `snapshot_id` back to, and without, `from_snapshot_id`, newest first.

    Raises:
        NoSuchSnapshotError: `from_snapshot_id` is not among the ancestors.
    """
    between: list[Snapshot] = []
    for ancestor in metadata.ancestors(snapshot_id):
        if ancestor.snapshot_id == from_snapshot_id:
            return between
        between.append(ancestor)
    message = (
        f"Table {metadata.location}: snapshot {from_snapshot_id} is no ancestor of {snapshot_id}, "
        "or has been expired."
    )
    raise NoSuchSnapshotError(message, snapshot_id=from_snapshot_id)


def bound_request(request: ScanRequest) -> tuple[Schema, Bound, PlanReport]:
    """The columns to read, the filter, and the report to be filled in. Raises as `plan_scan`."""
    schema, snapshot = request.schema, request.snapshot
    projected = project_schema(
        schema,
        request.select,
        case_sensitive=request.case_sensitive,
        beside=metadata_columns(request.metadata, request.select),
    )
    where = bind(request.where, schema, case_sensitive=request.case_sensitive)
    report = PlanReport(
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        schema_id=schema.schema_id,
        filter=describe(where),
        projected_columns=tuple(field.name for field in projected.fields),
        projected_ids=tuple(field.field_id for field in projected.fields),
    )
    return projected, where, report


def _plan(
    request: ScanRequest,
    storage: Storage,
    cache: ManifestCache | None,
    snapshot: Snapshot | None,
    list_manifests: Callable[[], Listed],
    *,
    added_by: frozenset[int] | None = None,
) -> ScanPlan:
    projected, where, report = bound_request(request)
    options = split_options(request)
    if snapshot is None:
        return ScanPlan(None, projected, report, (), (), options)
    with _timed(report, "manifest_list"):
        manifests = list_manifests()
    types = types_of(request.metadata)
    specs = request.metadata.specs()
    reader = ManifestReader(storage, types, specs, request.use_columnar, cache, report.notes)
    columns = None if request.include_metrics else [*PLAN_COLUMNS, *_partition_columns(request)]
    search = Search(
        widen(where, types),
        reader,
        columns,
        os.cpu_count() or 1,
        added_by,
        checkpoint=request.checkpoint,
    )
    data, deletes = _search(manifests, search, report)
    report.data_manifests, report.data_files = data.manifests, data.files
    report.delete_manifests, report.delete_files = deletes.manifests, deletes.files
    with _timed(report, "deletes"):
        delete_entries = [entry for part in deletes.parts for entry in part.to_manifest_entries()]
        index = DeleteIndex(delete_entries, search.reader.specs)
    of_partitions = {} if request.whole_residuals else _residuals(search)
    # what is kept of the plan outlives its request
    files, tasks = _lazy(data.parts, search.where, of_partitions, index, request.include_metrics)
    return ScanPlan(snapshot.snapshot_id, projected, report, files, tasks, options)


def project_schema(
    schema: Schema,
    select: Sequence[str] | None,
    *,
    case_sensitive: bool = True,
    beside: Mapping[str, NestedField] = MappingProxyType({}),
) -> Schema:
    """The columns of `select` in its order; all, in the table's order, if None or with `*`.

    `beside` are columns that the table has beside its own, by name: they come when they are named,
    and no own column is.

    Raises:
        InvalidSchemaError: a name is no column, or may be one of several.
    """
    if select is None or "*" in select:
        return schema
    own = set(schema.column_names)
    more = {name: beside[name] for name in select if name in beside and name not in own}
    try:
        select = [
            name if name in more else spelled(name, schema, case_sensitive=case_sensitive)
            for name in select
        ]
        chosen = schema.select(*(name for name in select if name not in more))
    except ValueError as error:
        known = ", ".join(sorted(schema.column_names))
        raise InvalidSchemaError(
            f"cannot select {', '.join(select)}: {error}; columns are {known}"
        ) from error
    mentioned = _first_mentions(select)
    fields = sorted((*chosen.fields, *more.values()), key=lambda field: mentioned[field.name])
    return Schema(
        *fields, schema_id=chosen.schema_id, identifier_field_ids=chosen.identifier_field_ids
    )


def _first_mentions(select: Sequence[str]) -> dict[str, int]:
    """By column the position in `select` of the first path that is it or reaches into it."""
    mentions: dict[str, int] = {}
    for position, path in enumerate(select):
        dots = (at for at, letter in enumerate(path) if letter == ".")
        for end in (*dots, len(path)):
            mentions.setdefault(path[:end], position)
    return mentions


def split_options(request: ScanRequest) -> SplitOptions:
    """The `read.split.*` properties of the table."""
    properties = TableProperties(request.metadata.properties)
    return SplitOptions(
        properties.split_target_size, properties.split_lookback, properties.split_open_file_cost
    )


def _search(manifests: Listed, search: Search, report: PlanReport) -> tuple[Survivors, Survivors]:
    data, deletes = Survivors(), Survivors()
    index = ManifestIndex.of(manifests)
    # a delete may be listed under another spec than the data file it names: then its partition says
    # nothing about the file
    where = search.where if index.has_one_spec else TRUE
    everything = replace(search, where=where, columns=None, added_by=None, use_metrics=False)
    with _timed(report, "prune_manifests"):
        of_data = prune_manifests(index.data, search, data)
        of_deletes = prune_manifests(index.deletes, everything, deletes)
    with _timed(report, "prune_files"):
        prune_files(of_data, search, data)
        # also where no data is live: reading refuses data that is listed as deletes
        if data.parts or search.where == TRUE:
            prune_files(of_deletes, everything, deletes)
    return data, deletes


def _lazy(
    parts: Sequence[Entries],
    where: Bound,
    residuals: Mapping[int, Residuals],
    index: DeleteIndex,
    include_metrics: bool,
) -> tuple[LazyItems[Entries, DataFile], LazyItems[Any, FileScanTask]]:
    lengths = [len(part) for part in parts]
    files: LazyItems[Entries, DataFile] = LazyItems(
        parts, lengths, lambda part: _bare(part, include_metrics).to_data_files()
    )
    starts = _starts(lengths)

    def make_tasks(position: int) -> list[FileScanTask]:
        part = parts[position]
        sequence_numbers = part.table["sequence_number"].to_pylist()
        made = files[starts[position] : starts[position] + lengths[position]]
        of_partition = residuals.get(part.spec.spec_id)
        return [
            FileScanTask(
                data_file=file,
                deletes=index.deletes_for(file, number or 0),
                residual=where if of_partition is None else of_partition.of(file.partition),
                start=0,
                length=file.file_size_in_bytes,
                sequence_number=number or 0,
            )
            for file, number in zip(made, sequence_numbers, strict=True)
        ]

    return files, LazyItems(range(len(parts)), lengths, make_tasks)


def _residuals(search: Search) -> dict[int, Residuals]:
    return {
        spec_id: Residuals(search.where, spec, search.reader.types, search.projected(spec_id))
        for spec_id, spec in search.reader.specs.items()
    }


def _starts(lengths: Sequence[int]) -> list[int]:
    starts = [0]
    for length in lengths[:-1]:
        starts.append(starts[-1] + length)
    return starts


def _bare(part: Entries, include_metrics: bool) -> Entries:
    """Without the metric columns that only pruning or an Avro manifest brought along."""
    if include_metrics:
        return part
    metrics = tuple(f"{prefix}." for prefix in (*COUNTS, *BOUNDS))
    return Entries(
        part.table.select(
            [name for name in part.table.column_names if not name.startswith(metrics)]
        ),
        part.spec,
    )


def _partition_columns(request: ScanRequest) -> list[str]:
    return [
        f"partition.{field.field_id}"
        for spec in request.metadata.partition_specs
        for field in spec.fields
    ]


@contextmanager
def _timed(report: PlanReport, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.stage_ms[stage] = round((time.perf_counter() - start) * 1000, 3)
