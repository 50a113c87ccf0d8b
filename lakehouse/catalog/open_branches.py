"""Which tables have rows on which branch of the lake: properties of one table of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

import pyarrow as pa

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import new_table_metadata
from lakehouse.spec.metadata.table_updates import RemoveProperties, SetProperties
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.types.arrow_types import schema_from_arrow

PUBLICATIONS = Identifier(("lakehouse",), "publications")
"""The table of what was published together: a row for each table of each publication."""
PUBLICATION_SCHEMA = pa.schema(
    {
        "version": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "branch": pa.string(),
        "run_id": pa.string(),
        "table": pa.string(),
        "before_snapshot_id": pa.int64(),
        "snapshot_id": pa.int64(),
    }
)
BRANCH_VARIABLE = "LAKEHOUSE_BRANCH"
"""Environment variable: the branch of the lake that the pipeline and the commands work on."""
_PREFIX = "branch:"


class OpenBranches:
    """What is noted of branches of a whole lake, by their names.

    Args:
        catalog: has the table; it is created by the first note.
        environment: clock, ids.
    """

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self._catalog, self._environment = catalog, environment

    def tables(self, branch: str) -> list[Identifier] | None:
        """The tables that may have rows on a branch, sorted; None: nobody knows of such a branch.

        A table is noted before it gets its first row, so that none is ever missing.
        """
        tables = self.all().get(branch)
        return None if tables is None else sorted(tables, key=str)

    def all(self) -> Mapping[str, list[Identifier]]:
        """Every branch, with the tables that may have rows on it."""
        try:
            known = self._catalog.load(PUBLICATIONS).metadata.properties
        except NoSuchTableError:
            return {}
        return _by_branch(known)

    def note(self, branch: str, tables: Iterable[Identifier] = ()) -> None:
        """Note a branch, and tables that are about to have rows on it."""
        wanted = {f"{_PREFIX}{branch}:{table}" for table in tables} or {f"{_PREFIX}{branch}:"}
        self._change(lambda known: SetProperties(dict.fromkeys(wanted - set(known), "")))

    def forget(self, branch: str) -> list[Identifier]:
        """Forget a branch; the tables that were noted with it until then."""
        forgotten: list[Identifier] = []

        def gone(known: Collection[str]) -> RemoveProperties:
            forgotten[:] = _by_branch(known).get(branch, [])
            return RemoveProperties(
                tuple(key for key in known if key.startswith(f"{_PREFIX}{branch}:"))
            )

        self._change(gone)
        return forgotten

    def table(self) -> TableVersion:
        """The table of publications, created where it is missing."""
        try:
            return self._catalog.load(PUBLICATIONS)
        except NoSuchTableError:
            pass
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(PUBLICATIONS.namespace)
        schema = schema_from_arrow(PUBLICATION_SCHEMA)
        metadata = new_table_metadata(
            schema=schema,
            spec=parse_partition_spec((), schema),
            sort_order=parse_sort_order((), schema),
            location=self._catalog.default_location(PUBLICATIONS),
            properties={"comment": "what was published together"},
            format_version=2,
            table_uuid=str(self._environment.new_uuid()),
            now_ms=self._environment.now_ms(),
        )
        try:
            return self._catalog.create(PUBLICATIONS, metadata)
        except TableAlreadyExistsError:
            return self._catalog.load(PUBLICATIONS)

    def _change(
        self, update: Callable[[Collection[str]], SetProperties | RemoveProperties]
    ) -> None:
        while True:
            version = self.table()
            change = update(version.metadata.properties.keys())
            if not (change.updates if isinstance(change, SetProperties) else change.removals):
                return
            try:
                self._catalog.commit(PUBLICATIONS, version, (), (change,))
            except CommitConflictError:  # some other branch was noted
                continue
            return


def _by_branch(properties: Iterable[str]) -> dict[str, list[Identifier]]:
    tables: dict[str, list[Identifier]] = {}
    for key in properties:
        if key.startswith(_PREFIX):
            branch, _, table = key.removeprefix(_PREFIX).partition(":")
            tables.setdefault(branch, []).extend([Identifier.parse(table)] if table else [])
    return tables
