"""A table at one of its versions: what is read of it, and what all verbs on it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Self, TypeVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import check_table
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.environment import Environment
from lakehouse.errors import SnapshotExpiredError
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.inspect.metadata_tables import MetadataTables
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.commit_names import head_of
from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_unwritable
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.scan import (
    Changelog,
    Point,
    TableScan,
    checked_limit,
    chosen_point,
    columns,
    point_of,
    point_of_ref,
    update_keys,
)
from lakehouse.table.times import Moment
from lakehouse.transaction.commit import Committed
from lakehouse.transaction.transaction import Transaction

Read = TypeVar("Read")


class LoadedTable:
    """A table at the version it had when it was loaded, or last changed through this object.

    Attributes:
        catalog: the catalog underneath.
        environment: clock, ids and randomness.
        listeners: get a report of every scan planned.
    """

    def __init__(
        self,
        catalog: Catalog,
        version: TableVersion,
        environment: Environment | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.catalog = catalog
        self.environment = environment or Environment.system()
        self.listeners = Listeners(self.environment.now_ms) if listeners is None else listeners
        self._version = version

    @property
    def identifier(self) -> Identifier:
        """Namespace and name.

        >>> events.identifier.namespace, events.identifier.name
        (('raw',), 'events')
        """
        return self._version.identifier

    @property
    def name(self) -> str:
        """Dotted name.

        >>> events.name
        'raw.events'
        """
        return str(self.identifier)

    @property
    def version(self) -> TableVersion:
        """The version of this object: metadata and its location.

        >>> before = events.version
        >>> _ = events.append(more)
        >>> events.move_to(before).scan().count()
        3
        """
        return self._version

    @property
    def metadata(self) -> TableMetadata:
        """The metadata of this version.

        >>> events.metadata.format_version, len(events.metadata.snapshots)
        (2, 1)
        """
        return self._version.metadata

    @property
    def metadata_location(self) -> str:
        """Location of this version's metadata file; any Iceberg engine can open the table with it.

        >>> from pyiceberg.table import StaticTable
        >>> StaticTable.from_metadata(events.metadata_location).scan().to_arrow().num_rows
        3
        """
        return self._version.metadata_location

    @property
    def location(self) -> str:
        """The table's folder.

        >>> events.location.endswith("/raw/events")
        True
        """
        return self.metadata.location

    @property
    def storage(self) -> Storage:
        """The storage of the table's files.

        >>> events.storage.exists(events.metadata_location)
        True
        """
        return self.catalog.storage(self.location)

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties.

        >>> events.set_properties({"owner": "ada"}).properties["owner"]
        'ada'
        """
        return self.metadata.properties

    def schema(self) -> Schema:
        """The current schema.

        >>> events.schema().column_names
        ['event_ts', 'user_id', 'amount']
        """
        return self.metadata.schema()

    def spec(self) -> PartitionSpec:
        """The current partition spec.

        >>> [str(field.transform) for field in events.spec().fields]
        ['day']
        """
        return self.metadata.spec()

    def refresh(self) -> Self:
        """Move to the newest version; returns the table itself.

        >>> seen_earlier = lake.load_table("raw.events")
        >>> _ = events.append(more)
        >>> seen_earlier.scan().count(), seen_earlier.refresh().scan().count()
        (3, 4)
        """
        self._version = self.catalog.refresh(self._version)
        return self

    def move_to(self, version: TableVersion) -> Self:
        """Move to a version of this table; returns the table itself.

        >>> before = events.version
        >>> _ = events.append(more)
        >>> events.move_to(before).scan().count()
        3
        """
        self._version = version
        return self

    def transaction(self, *, branch: str = "main") -> Transaction:
        """Change the table by several operations in one commit, based on this version.

        Call `refresh()` afterwards to see it here.

        >>> changes = events.transaction()
        >>> committed = (
        ...     changes.set_properties({"owner": "ada"}).append(events.write_files(more)).commit()
        ... )
        >>> events.refresh().properties["owner"], events.scan().count()
        ('ada', 4)
        """
        return Transaction(
            self.catalog,
            self.identifier,
            decided_on=self._version,
            branch=branch,
            environment=self.environment,
        )

    def write_request(self, version: TableVersion | None = None) -> WriteRequest:
        """What a writer has to know to write data files for this version.

        >>> events.write_request().format_version
        2

        Args:
            version: another version of the table.

        Raises:
            UnsupportedFeatureError: a v1 table, or one whose files are encrypted.
            InvalidLocationError: its metadata says to write outside the warehouse.
        """
        metadata = (version or self._version).metadata
        refuse_unwritable(metadata, metadata.current_snapshot())
        check_table(self.catalog, metadata)
        return WriteRequest(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order=metadata.write_sort_order(),
            location=TableProperties(metadata.properties).data_location(metadata.location),
            properties=metadata.properties,
            format_version=metadata.format_version,
            write_id=str(self.environment.new_uuid()),
            table=self.name,
        )

    # Reads see the version that the table was loaded at

    def scan(
        self,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        *,
        snapshot_id: int | None = None,
        as_of: Moment | None = None,
        ref: str = "main",
        run: str | None = None,
        case_sensitive: bool = True,
        limit: int | None = None,
    ) -> TableScan:
        """A scan of one snapshot; reads nothing until you ask for rows.

        >>> events.scan(where="user_id = 1", select=["amount"]).to_arrow().to_pydict()
        {'amount': [10.0, 30.0]}
        >>> events.scan(where="event_ts >= '2026-06-02'").plan().report.data_files.planned
        1

        Args:
            where: filter in SQL (docs/filters.md), or an expression of pyiceberg.
            select: columns; `a.b` reaches into structs.
            snapshot_id: id of the snapshot.
            as_of: the snapshot that was current at this time: datetime (naive means UTC), ISO text
                or milliseconds.
            ref: a branch, whose head is read, or a tag.
            run: a Dagster run id; its last snapshot is read.
            case_sensitive: whether column names must match exactly.
            limit: most rows to read; which rows is not defined. Reading stops early.

        Raises:
            InvalidInputError: more than one of `snapshot_id`, `as_of` and `run`; a negative limit.
            NoSuchSnapshotError | NoSuchRefError: there is no such snapshot, branch or tag.
        """
        point = point_of(
            self.metadata, self.name, snapshot_id=snapshot_id, as_of=as_of, ref=ref, run=run
        )
        request = self._scan_request(point, where, select, case_sensitive=case_sensitive)
        most = checked_limit(limit, self.name)
        planner = self.catalog.planner(self.identifier)
        return TableScan(
            name=self.name,
            request=request,
            storage=self.storage,
            listeners=self.listeners,
            limit=most,
            planner=planner,
            held=self._held,
        )

    def scan_appends(
        self,
        from_snapshot_id: int,
        to_snapshot_id: int | None = None,
        *,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        ref: str = "main",
        limit: int | None = None,
    ) -> TableScan:
        """Rows that appends added after one snapshot up to another, or to the head of `ref`.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.append(more)
        >>> events.scan_appends(first).to_arrow()["amount"].to_pylist()
        [40.0]

        Raises:
            InvalidInputError: both `to_snapshot_id` and `ref`.
            NoSuchSnapshotError: `from_snapshot_id` is no ancestor of `to_snapshot_id`; raised when
                the scan is planned.
        """
        end = chosen_point(self.metadata, self.name, to_snapshot_id, ref)
        request = self._scan_request(end, where, select)
        most = checked_limit(limit, self.name)
        planner = self.catalog.planner(self.identifier)
        return TableScan(
            name=self.name,
            request=request,
            storage=self.storage,
            appended_after=from_snapshot_id,
            listeners=self.listeners,
            limit=most,
            planner=planner,
            held=self._held,
        )

    def changelog(
        self,
        from_snapshot_id: int | None = None,
        to_snapshot_id: int | None = None,
        *,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        net: bool = False,
        updates: bool | str | Sequence[str] = False,
        ref: str = "main",
    ) -> Changelog:
        """Rows inserted and deleted after one snapshot (None: ever) up to another, or to `ref`.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.delete(where="amount = 10")
        >>> events.changelog(first).to_arrow().select(["amount", "_change_type"]).to_pylist()
        [{'amount': 10.0, '_change_type': 'DELETE'}]

        Compaction changes no row, and rows that an overwrite only copied are left out; with `net`
        also rows that were inserted and deleted within the range.

        With `updates` a row that went and one that came in one snapshot, equal in these columns (in
        the identifier fields if True), are UPDATE_BEFORE and UPDATE_AFTER:

        >>> _ = events.update({"amount": "amount * 2"}, where="amount = 30")
        >>> changes = events.changelog(first, updates=["user_id", "event_ts"]).to_arrow()
        >>> for change in changes.select(["amount", "_change_type"]).to_pylist()[1:]:
        ...     print(change)
        {'amount': 30.0, '_change_type': 'UPDATE_BEFORE'}
        {'amount': 60.0, '_change_type': 'UPDATE_AFTER'}

        A filter is applied first: if one half does not pass, the other is a DELETE or an INSERT.
        `select` may name `_partition`, that of the file where the row was or is.

        Raises:
            InvalidInputError: both `to_snapshot_id` and `ref`, or both `net` and `updates`, or
                nothing by which rows are the same.
        """
        end = chosen_point(self.metadata, self.name, to_snapshot_id, ref)
        request = self._scan_request(end, where, select)
        same = update_keys(request.schema, self.name, updates, net=net)
        return Changelog(request, self.storage, from_snapshot_id, net, same, self._held)

    def _scan_request(
        self,
        point: Point,
        where: Where,
        select: Sequence[str] | str | None,
        *,
        case_sensitive: bool = True,
    ) -> ScanRequest:
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=point.snapshot_id,
            current_schema=point.current_schema,
            select=columns(select),
            case_sensitive=case_sensitive,
        )
        if where is None:
            return request
        schema = request.schema
        return replace(request, where=bind(where, schema, case_sensitive=case_sensitive))

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that have not expired, oldest first.

        >>> _ = events.append(more)
        >>> [snapshot.operation for snapshot in events.snapshots()]
        ['append', 'append']
        """
        return sorted(self.metadata.snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms))

    def current_snapshot(self, *, ref: str = "main") -> Snapshot | None:
        """The head of a branch, or a tag's snapshot; None if the table is empty.

        Raises NoSuchRefError.

        >>> events.current_snapshot().summary["total-records"]
        '3'
        """
        head = point_of_ref(self.metadata, ref).snapshot_id
        return self.metadata.current_snapshot() if head is None else self.metadata.snapshot(head)

    def history(self, *, ref: str = "main") -> list[Snapshot]:
        """The snapshot of `ref` and its ancestors, oldest first, by parent and not by time.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.append(more)
        >>> len(events.history())
        2
        >>> len(events.rollback_to(first).history())
        1

        Raises NoSuchRefError.
        """
        head = self.current_snapshot(ref=ref)
        return [] if head is None else list(self.metadata.ancestors(head.snapshot_id))[::-1]

    def refs(self) -> Mapping[str, SnapshotRef]:
        """Branches and tags by name.

        >>> sorted(events.create_tag("reviewed").refs())
        ['main', 'reviewed']
        """
        return self.metadata.refs

    @property
    def inspect(self) -> MetadataTables:
        """Metadata tables as Arrow: `inspect.files()`, `inspect.snapshots()`, ...

        >>> events.inspect.files().select(["record_count"]).to_pydict()
        {'record_count': [2, 1]}
        """
        return MetadataTables(self._version, self.storage, self._held)

    @property
    def _held(self) -> HeldVersion:
        return HeldVersion(self.catalog, self._version)

    def _moved(self, committed: Committed) -> Self:
        return self.move_to(committed.version)


def of_newest(table: LoadedTable, read: Callable[[], Read], branch: str) -> Read:
    """What is read of the table's version; of the newest, where the branch's snapshot has expired.

    The table moves to the newest version then. Raises SnapshotExpiredError: so has that.
    """
    try:
        with _reading(table, branch):
            return read()
    except SnapshotExpiredError:
        table.move_to(table.catalog.load(table.identifier))
    with _reading(table, branch):
        return read()


def _reading(table: LoadedTable, branch: str) -> AbstractContextManager[None]:
    head = head_of(table.metadata, branch)
    held = HeldVersion(table.catalog, table.version)
    return held.reading(None if head is None else head.snapshot_id)
