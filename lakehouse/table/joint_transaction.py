"""Changes of several tables, made all at once or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import NoReturn

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.joint_catalog import JointCatalog
from lakehouse.environment import Environment
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table.table import Table


class TableInTransaction:
    """A table whose changes are made with those of other tables.

    It has the verbs of Table that change rows, schema and properties, and scans, which see what
    this transaction did. What deletes files has to wait: the transaction may still fail.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.append, self.overwrite, self.delete = table.append, table.overwrite, table.delete
        self.update, self.upsert, self.merge = table.update, table.upsert, table.merge
        self.apply_changes = table.apply_changes
        self.rollback_to = table.rollback_to
        self.set_properties, self.remove_properties = table.set_properties, table.remove_properties
        self.update_schema, self.update_sort_order = table.update_schema, table.update_sort_order
        self.update_partition_spec = table.update_partition_spec
        self.scan, self.schema, self.name = table.scan, table.schema, table.name
        self.current_snapshot, self.snapshots = table.current_snapshot, table.snapshots

    @property
    def metadata(self) -> TableMetadata:
        """The metadata as the transaction has made it so far."""
        return self._table.metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties, with those that the transaction has set."""
        return self._table.properties

    def __getattr__(self, verb: str) -> NoReturn:
        if verb.startswith("_") or not hasattr(Table, verb):
            raise AttributeError(f"A table has no {verb!r}.")
        raise UnsupportedFeatureError(
            f"{verb} of {self.name} cannot be part of a transaction over tables. Do it before or "
            "afterwards."
        )


class JointTransaction:
    """Several tables in one transaction; use it in a `with` block, at whose end it commits.

    >>> lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
    >>> for name in ("raw.sold", "raw.shipped"):
    ...     _ = lake.create_table(name, more.schema)
    >>> with lake.transaction() as tx:
    ...     _ = tx.table("raw.sold").append(more)
    ...     _ = tx.table("raw.shipped").append(more)
    >>> lake.load_table("raw.shipped").scan().count()
    1

    A block that raises commits nothing. Files that were written for what was not committed stay
    until orphans are removed.

    Args:
        catalog: commits to several tables at once.
        environment: clock, ids.
        listeners: get a report of every scan planned.
    """

    def __init__(self, catalog: Catalog, environment: Environment, listeners: Listeners) -> None:
        if not (catalog.commits_together or catalog.records_transactions):
            raise UnsupportedFeatureError(
                f"The catalog {catalog.name} commits to one table at a time: its server offers no "
                "transactions over tables."
            )
        self._staging = JointCatalog(catalog, environment)
        self._environment, self._listeners = environment, listeners

    def table(self, name: str | tuple[str, ...] | Identifier) -> TableInTransaction:
        """A table as this transaction sees it. Raises NoSuchTableError."""
        version = self._staging.load(Identifier.parse(name))
        return TableInTransaction(Table(self._staging, version, self._environment, self._listeners))

    def __enter__(self) -> JointTransaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit to all tables, or to none.

        Raises:
            CommitConflictError: certainly not committed: somebody committed to one of the tables
                since the block first loaded it. Run the block again.
            CommitStateUnknownError: perhaps committed, to all or to none.
        """
        if kind is None:
            self._staging.commit_together()
