"""Verbs that read: rows of a snapshot, rows between two, snapshots, refs and metadata tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.inspect.metadata_tables import MetadataTables
from lakehouse.scan.planner import ScanRequest, schema_of, snapshot_of
from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.table.changelog import Changelog
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.scan import (
    Point,
    TableScan,
    checked_limit,
    chosen_point,
    columns,
    point_of,
    point_of_ref,
)
from lakehouse.table.times import Moment


class ReadVerbs(LoadedTable):
    """Reads see the version that the table was loaded at."""

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
            self.name, request, self.storage, None, self.listeners, most, planner, self._held
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
            *(self.name, request, self.storage, from_snapshot_id, self.listeners, most, planner),
            self._held,
        )

    def changelog(
        self,
        from_snapshot_id: int | None = None,
        to_snapshot_id: int | None = None,
        *,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        net: bool = False,
        ref: str = "main",
    ) -> Changelog:
        """Rows inserted and deleted after one snapshot (None: ever) up to another, or to `ref`.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.delete(where="amount = 10")
        >>> events.changelog(first).to_arrow().select(["amount", "_change_type"]).to_pylist()
        [{'amount': 10.0, '_change_type': 'DELETE'}]

        Compaction changes no row, and rows that an overwrite only copied are left out; with `net`
        also rows that were inserted and deleted within the range.

        Raises:
            InvalidInputError: both `to_snapshot_id` and `ref`.
        """
        end = chosen_point(self.metadata, self.name, to_snapshot_id, ref)
        request = self._scan_request(end, where, select)
        return Changelog(request, self.storage, from_snapshot_id, net, self._held)

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
        schema = schema_of(request, snapshot_of(request))
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
        found = point_of_ref(self.metadata, ref).snapshot_id
        return self.metadata.current_snapshot() if found is None else self.metadata.snapshot(found)

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
