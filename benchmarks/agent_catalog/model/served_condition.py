"""A condition of the evaluation as `lakehouse mcp` serves a lakehouse that nobody changes."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.agent_catalog.conditions import Shown
from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.live_catalog import LiveCatalog
from lakehouse.table import Table


class ServedCondition(LiveCatalog):
    """What the tools answer from.

    Args:
        shown: with the table versions that queries run on.
    """

    waits = False

    def __init__(self, shown: Shown) -> None:
        super().__init__(shown.seen.lake)
        self._shown = shown

    @property
    def map(self) -> CatalogMap:
        """That of the condition."""
        return self._shown.catalog

    @property
    def tables(self) -> Mapping[str, Table]:
        """Versions of the condition's time."""
        return {table.name: table for table in self._shown.seen.tables.values()}

    def at(self, name: str, snapshot_id: int) -> CatalogMap:
        """The same statements: of what was said earlier nothing is kept."""
        mapped, now = self.table(name, snapshot_id), self.map
        return CatalogMap(now.name, {**now.tables, name: mapped}, now.statements)
