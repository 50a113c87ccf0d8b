"""A table at one of its versions: what all verbs on it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Self, TypeVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.catalog.catalog_decorator import HeldVersion
from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import check_table
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.environment import Environment
from lakehouse.errors import SnapshotExpiredError
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_encrypted, refuse_v1
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.commit import Committed
from lakehouse.transaction.transaction import Transaction

Read = TypeVar("Read")


class LoadedTable:
    """A table at the version it had when it was loaded, or last changed through this object.

    Attributes:
        catalog: the catalog underneath.
        environment: clock, ids and randomness.
        listeners: told of every scan planned.
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
            base=self._version,
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
        refuse_v1(metadata)
        refuse_encrypted(metadata.location, metadata.properties, metadata.current_snapshot())
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

    def _head(self, branch: str) -> int | None:
        """The head of a branch; of main for a branch that the commit will create."""
        ref = self.metadata.refs.get(branch)
        return self.metadata.current_snapshot_id if ref is None else ref.snapshot_id

    @property
    def _held(self) -> HeldVersion:
        return HeldVersion(self.catalog, self._version)

    def _reading(self, branch: str) -> AbstractContextManager[None]:
        """Within, the head of a branch is read. Raises SnapshotExpiredError."""
        return self._held.reading(self._head(branch))

    def _of_newest(self, read: Callable[[], Read], branch: str) -> Read:
        """What is read of this version; of the newest, where the branch's snapshot has expired.

        The table moves to the newest version then. Raises SnapshotExpiredError: so has that.
        """
        try:
            with self._reading(branch):
                return read()
        except SnapshotExpiredError:
            self.move_to(self.catalog.load(self.identifier))
        with self._reading(branch):
            return read()

    def _moved(self, committed: Committed) -> Self:
        return self.move_to(committed.version)
