"""Changes of several tables, made all at once or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import Any, cast

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.staging_catalog import StagingCatalog
from lakehouse.environment import Environment
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.identifier import Identifier
from lakehouse.table.table import Table

_VERBS = frozenset(
    {
        *("append", "overwrite", "delete", "update", "upsert", "merge", "apply_changes"),
        *("set_properties", "remove_properties", "update_schema", "update_partition_spec"),
        *("update_sort_order", "scan", "schema", "name", "metadata", "properties"),
        *("current_snapshot", "snapshots"),
    }
)


class TableInTransaction:
    """A table whose changes are made with those of other tables.

    It has the verbs of Table that change rows, schema and properties, and scans, which see what
    this transaction did. What deletes files has to wait: the transaction may still fail.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getattr__(self, verb: str) -> Any:
        if verb not in _VERBS:
            if verb.startswith("_") or not hasattr(self._table, verb):
                raise AttributeError(f"A table has no {verb!r}.")
            raise UnsupportedFeatureError(
                f"{verb} of {self._table.name} cannot be part of a transaction over tables. Do it "
                "before or afterwards."
            )
        return getattr(self._table, verb)


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
        listeners: told of scans.
    """

    def __init__(self, catalog: Catalog, environment: Environment, listeners: Listeners) -> None:
        if not catalog.commits_together:
            raise UnsupportedFeatureError(
                f"The catalog {catalog.name} commits to one table at a time: transactions over "
                "tables need a SQL catalog."
            )
        self._staging = StagingCatalog(catalog, environment)
        self._environment, self._listeners = environment, listeners

    def table(self, name: str | tuple[str, ...] | Identifier) -> TableInTransaction:
        """A table as this transaction sees it. Raises NoSuchTableError."""
        staging = cast("Catalog", self._staging)
        version = staging.load(Identifier.parse(name))
        return TableInTransaction(Table(staging, version, self._environment, self._listeners))

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
                since it was first asked for. Run the block again.
            CommitStateUnknownError: perhaps committed, to all or to none.
        """
        if kind is None:
            self._staging.commit_staged()
