"""A version of a table that is read while others commit, and may expire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.joint_catalog import JointCatalog
from lakehouse.errors import NoSuchFileError, SnapshotExpiredError


@dataclass(frozen=True, slots=True)
class HeldVersion:
    """A version of a table, and who knows what became of it.

    Attributes:
        catalog: has the newest version.
        version: that is held.
    """

    catalog: Catalog
    version: TableVersion

    @contextmanager
    def reading(self, *snapshot_ids: int | None) -> Iterator[None]:
        """Within, files of these snapshots are read; of all that the version has, without ids.

        Raises:
            SnapshotExpiredError: a file is missing, and one of the snapshots has expired.
            NoSuchTableError: a file is missing, and so is the table.
            NoSuchFileError: a file is missing that should be there.
        """
        try:
            yield
        except NoSuchFileError as error:
            held = [snapshot.snapshot_id for snapshot in self.version.metadata.snapshots]
            expired = self.expired(snapshot_ids or held)
            if expired is None:
                raise
            raise expired from error

    def expired(self, snapshot_ids: Iterable[int | None]) -> SnapshotExpiredError | None:
        """That one of these snapshots, which the version has, has expired since; None: none has.

        Raises NoSuchTableError.
        """
        held = self.version.metadata
        # a transaction over tables shows each as it was
        catalog = self.catalog.inside if isinstance(self.catalog, JointCatalog) else self.catalog
        newest = catalog.load(self.version.identifier).metadata
        if newest.table_uuid != held.table_uuid:
            return None
        for snapshot_id in snapshot_ids:
            if snapshot_id is None or held.snapshot_or_none(snapshot_id) is None:
                continue
            if newest.snapshot_or_none(snapshot_id) is None:
                return SnapshotExpiredError(
                    f"Table {self.version.identifier}: snapshot {snapshot_id} has expired since "
                    "the table was loaded. Refresh or load the table, and do it again.",
                    table=str(self.version.identifier),
                    snapshot_id=snapshot_id,
                )
        return None
