"""A lakehouse as agents see it: its map, made again when it is older than a few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from lakehouse.agents.catalog_map import CatalogMap, MappedTable
from lakehouse.agents.mapping import MapOptions, catalog_map
from lakehouse.curation.checkup import Survey, survey
from lakehouse.errors import NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.table import Table

FRESH_MS = 2_000


class LiveCatalog:
    """Serves answers about a lakehouse that others change meanwhile.

    Args:
        lake: the lakehouse.
        options: what its map shows.
        fresh_ms: how old a map may be; an answer is at most this much behind the catalog.
    """

    def __init__(
        self, lake: Lakehouse, options: MapOptions | None = None, fresh_ms: int = FRESH_MS
    ) -> None:
        self.lake = lake
        self._options = options or MapOptions()
        self._fresh_ms = fresh_ms
        self._lock = Lock()
        self._seen: Survey | None = None
        self._map: CatalogMap | None = None

    @property
    def map(self) -> CatalogMap:
        """The map, of a survey that is fresh."""
        return self._fresh()[1]

    @property
    def tables(self) -> Mapping[str, Table]:
        """The table versions that the map is of, by name."""
        return {table.name: table for table in self._fresh()[0].tables.values()}

    def table(self, name: str, snapshot_id: int | None = None) -> MappedTable:
        """A table of the map; with a snapshot its columns and rows as they were then.

        Raises:
            NoSuchTableError, NoSuchSnapshotError: there is none of that name or id.
        """
        seen, found = self._fresh()
        mapped = found.tables.get(name)
        if mapped is None:
            listed = ", ".join(list(found.tables)[:10])
            raise NoSuchTableError(f"There is no table {name}; there are {listed}", table=name)
        if snapshot_id is None or snapshot_id == mapped.snapshot_id:
            return mapped
        table = next(one for one in seen.tables.values() if one.name == name)
        snapshot = table.metadata.snapshot(snapshot_id)
        total = snapshot.summary.get("total-records", "")
        return MappedTable(
            name=name,
            snapshot_id=snapshot_id,
            rows=int(total) if total.isdigit() else None,
            schema=table.metadata.schema_for(snapshot),
        )

    def at(self, name: str, snapshot_id: int) -> CatalogMap:
        """The map of what was said when a snapshot was made; states are those of now.

        Raises:
            NoSuchTableError, NoSuchSnapshotError: there is none of that name or id.
        """
        mapped = self.table(name, snapshot_id)
        table = self.tables[name]
        then = table.metadata.snapshot(snapshot_id).timestamp_ms
        earlier = catalog_map(survey(self.lake, as_of_ms=then), self._options)
        return CatalogMap(
            name=earlier.name,
            tables={**earlier.tables, name: mapped},
            statements=earlier.statements,
        )

    def _fresh(self) -> tuple[Survey, CatalogMap]:
        with self._lock:
            now = self.lake.environment.now_ms()
            if self._seen is None or self._map is None or now - self._seen.now_ms > self._fresh_ms:
                self._seen = survey(self.lake)
                self._map = catalog_map(self._seen, self._options)
            return self._seen, self._map
