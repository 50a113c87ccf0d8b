"""A condition of the evaluation as `lakehouse mcp` serves a lakehouse that does not change."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.agent_catalog.conditions import Shown
from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.live_catalog import CatalogView, LiveCatalog


class ServedCondition(LiveCatalog):
    """What the tools answer from.

    Args:
        shown: with the table versions that queries run on.
    """

    waits = False

    def __init__(self, shown: Shown) -> None:
        super().__init__(shown.seen.lake)
        tables = {table.name: table for table in shown.seen.tables.values()}
        self._shown = CatalogView(shown.catalog, tables, shown.seen)

    def view(self) -> CatalogView:
        """That of the condition, with table versions of its time."""
        return self._shown

    def view_at(self, view: CatalogView, name: str, snapshot_id: int) -> CatalogView:
        """The same statements: of what was said earlier nothing is kept."""
        tables = {**view.map.tables, name: view.table(name, snapshot_id)}
        return replace(view, map=CatalogMap(view.map.name, tables, view.map.statements))
