"""Inserted and deleted rows between two snapshots."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakehouse.catalog.catalog_decorator import HeldVersion
from lakehouse.data.reading.changelog_rows import read_changelog
from lakehouse.expressions.filter_binding import bind, refuse_metadata_columns
from lakehouse.scan.changelog_plan import ChangelogStep, plan_changelog
from lakehouse.scan.planner import ScanRequest, project_schema, schema_of, snapshot_of
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.scan import read_request


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
        held: the version read; None: nobody knows what becomes of it.
    """

    request: ScanRequest
    storage: Storage
    from_snapshot_id: int | None
    net: bool = False
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

        The type is INSERT or DELETE; ordinals count the snapshots.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.append(more)
        >>> events.changelog(first).to_arrow()["amount"].to_pylist()
        [40.0]
        """
        schema = schema_of(self.request, snapshot_of(self.request))
        projected = project_schema(
            schema, self.request.select, case_sensitive=self.request.case_sensitive
        )
        where = bind(self.request.where, schema, case_sensitive=self.request.case_sensitive)
        refuse_metadata_columns(where, "a changelog")
        reading = replace(read_request(self.request, projected), where=where)
        with self._reading():
            return read_changelog(self.plan(), reading, self.storage, net=self.net)

    def _reading(self) -> AbstractContextManager[None]:
        return nullcontext() if self.held is None else self.held.reading()
