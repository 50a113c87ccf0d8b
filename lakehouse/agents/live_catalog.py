"""A lakehouse as agents see it: its map, made again before it is older than a few seconds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock, Thread

from lakehouse.agents.catalog_map import CatalogMap, MappedTable
from lakehouse.agents.mapping import MapOptions, catalog_map
from lakehouse.curation.checkup import Survey, survey
from lakehouse.curation.lookout import Lookout
from lakehouse.errors import NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.table import Table

log = logging.getLogger(__name__)

FRESH_MS = 2_000


@dataclass(frozen=True, slots=True)
class _View:
    """A survey, its map, and the table versions that both are of, by name."""

    seen: Survey
    map: CatalogMap
    tables: Mapping[str, Table]


class LiveCatalog:
    """Serves answers about a lakehouse that others change meanwhile.

    A map that is half as old as it may be is made again beside the answers; they wait only for one
    that is too old, such as the first.

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
        self._lookout = Lookout(lake)
        self._looking = Lock()
        self._beside = Lock()
        self._view: _View | None = None

    @property
    def waits(self) -> bool:
        """Whether the next answer waits for the catalog to be read."""
        return self._age_ms() > self._fresh_ms

    @property
    def map(self) -> CatalogMap:
        """The map, of a survey that is fresh."""
        return self._fresh().map

    @property
    def tables(self) -> Mapping[str, Table]:
        """The table versions that the map is of, by name."""
        return self._fresh().tables

    def table(self, name: str, snapshot_id: int | None = None) -> MappedTable:
        """A table of the map; with a snapshot its columns and rows as they were then.

        Raises:
            NoSuchTableError, NoSuchSnapshotError: there is none of that name or id.
        """
        known = self.map.tables
        mapped, table = known.get(name), self.tables.get(name)
        if mapped is None or table is None:
            listed = ", ".join(list(known)[:10])
            raise NoSuchTableError(f"There is no table {name}; there are {listed}", table=name)
        if snapshot_id is None or snapshot_id == mapped.snapshot_id:
            return mapped
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

    def _age_ms(self) -> float:
        view = self._view
        return float("inf") if view is None else self.lake.environment.now_ms() - view.seen.now_ms

    def _fresh(self) -> _View:
        age_ms, view = self._age_ms(), self._view
        if view is None or age_ms > self._fresh_ms:
            with self._looking:
                view = self._view  # somebody else may have looked while this one waited
                if view is None or self._age_ms() > self._fresh_ms:
                    view = self._look()
        elif age_ms > self._fresh_ms / 2 and self._beside.acquire(blocking=False):
            Thread(target=self._look_beside, name="catalog-look", daemon=True).start()
        return view

    def _look_beside(self) -> None:
        try:
            with self._looking:
                self._look()
        except Exception:  # noqa: BLE001 - the next answer that waits for the catalog meets it
            log.warning("The catalog could not be read again", exc_info=True)
        finally:
            self._beside.release()

    def _look(self) -> _View:
        seen = self._lookout.look()
        before = None if self._view is None else self._view.map
        found = catalog_map(seen, self._options, earlier=before)
        tables = {table.name: table for table in seen.tables.values()}
        self._view = _View(seen, found, tables)
        return self._view
