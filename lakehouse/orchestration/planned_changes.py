"""What the present definitions would do to the present tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from rich.console import Group, RenderableType
from rich.text import Text

from lakehouse.errors import LakehouseError, NotFoundError
from lakehouse.ingestion.definition_changes import DefinitionChange, output_changes, recorded
from lakehouse.ingestion.drift import redeclared
from lakehouse.ingestion.landing_listing import list_landing
from lakehouse.ingestion.redefined_source import check_all_there, raw_layout, source_changes
from lakehouse.ingestion.source import RESERVED_COLUMNS, Column, Source
from lakehouse.ingestion.source_tables import check_partitioning, source_columns
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Report
from lakehouse.orchestration.assets.asset_table import AssetTable, code_version, plain_assets
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.assets.staleness import key_ranges, redefined_partitions
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.table import Table

_SHOWN = 500


@dataclass(frozen=True, slots=True)
class PlannedChanges(Report):
    """What the next runs would do because definitions are others than before.

    Attributes:
        changes: in the order of the pipeline; empty: the tables are as they are defined.
    """

    changes: tuple[DefinitionChange, ...]

    def title(self) -> str:
        """How many there are."""
        count = len(self.changes)
        if not count:
            return "The tables are as they are defined: nothing would change."
        refused = sum(change.effect == "refuse" for change in self.changes)
        also = f", {refused} of them refused" if refused else ""
        return f"{count} change{'' if count == 1 else 's'} of definitions{also}; nothing was done"

    def facts(self) -> Iterator[tuple[str, object]]:
        """How many of each effect."""
        for effect in dict.fromkeys(change.effect for change in self.changes):
            yield effect, sum(change.effect == effect for change in self.changes)

    def detail(self) -> RenderableType | None:
        """A paragraph a change: in a column of a table its commands would be cut in pieces."""
        parts: list[RenderableType] = []
        for change in self.changes[:_SHOWN]:
            sides = (change.before or "none", change.after or "none")
            states = "" if sides == ("none", "none") else f": {sides[0]} -> {sides[1]}"
            head = f"{change.table}  {change.effect}  {change.what}{states}"
            parts += [Text(head, style="bold"), Text(f"  {change.said}")]
        if len(self.changes) > _SHOWN:
            parts.append(Text(f"... and {len(self.changes) - _SHOWN:,} more", style="dim"))
        return Group(*parts) if parts else None

    def to_dict(self) -> dict[str, object]:
        return {"changes": [change.to_dict() for change in self.changes]}


def planned_changes(lake: Lakehouse, tables: Sequence[str] = ()) -> PlannedChanges:
    """What the definitions of the checkout would do to the tables of a catalog.

    Args:
        lake: the catalog that the pipeline writes to.
        tables: dotted names to look at; none: all.

    Raises:
        NotFoundError: no checkout, or a table that no definition writes.
    """
    checkout = checkout_here()
    with spark_when_asked("lakehouse-plan-changes") as session:
        return plan_changes(lake, checkout.pipeline, checkout.defs, session, tables)


def plan_changes(
    lake: Lakehouse,
    pipeline: Pipeline,
    defs: dg.Definitions,
    session: Callable[[], Any],
    tables: Sequence[str] = (),
) -> PlannedChanges:
    """What a pipeline and plain assets would do to the tables of a catalog; nothing is written.

    Args:
        lake: the catalog.
        pipeline: its sources and derived tables.
        defs: with the plain assets.
        session: gives a Spark session, called only where a table that Spark computes is
            defined otherwise than before.
        tables: dotted names to look at; none: all.

    Raises:
        NotFoundError: a table that no definition writes.
    """
    planned: dict[str, list[DefinitionChange]] = {}
    for source in pipeline.sources:
        planned[source.table] = list(_of_source(lake, source, pipeline.landing_root))
    for derived in pipeline.in_order():
        changes = list(_of_derived(lake, derived, session))
        planned[derived.name] = changes
        again = [
            input_name
            for input_name in derived.inputs
            if _is_recomputed(planned.get(input_name, ()))
        ]
        if again and not _is_recomputed(changes):
            consequence = f"the days follow that {', '.join(again)} is written anew for"
            changes.append(
                DefinitionChange(derived.name, "inputs", None, None, "recompute", consequence)
            )
    for asset, key in plain_assets(defs.assets or ()):
        target = _target(defs, asset, key)
        # whether one without an annotation gives rows is known when it has run
        is_annotated = asset.node_def.output_defs[0].dagster_type.typing_type is not Any
        if target is not None and (is_annotated or lake.table_exists(target.name)):
            planned[target.name] = list(_of_plain(lake, target, code_version(asset, key)))
    strange = [name for name in tables if name not in planned]
    if strange:
        raise NotFoundError(
            f"no definition writes {', '.join(strange)}; defined are {', '.join(planned)}"
        )
    chosen = [planned[name] for name in planned if not tables or name in tables]
    return PlannedChanges(tuple(change for changes in chosen for change in changes))


def _is_recomputed(changes: Iterable[DefinitionChange]) -> bool:
    return any(change.effect == "recompute" for change in changes)


def _of_source(lake: Lakehouse, source: Source, landing_root: str) -> Iterator[DefinitionChange]:
    if lake.table_exists(source.ledger_table):
        ledger = lake.load_table(source.ledger_table)
        changes = source_changes(source, recorded(ledger))
        yield from changes
        if any(change.effect == "recompute" for change in changes):
            yield from _refused(
                source.table,
                "landing files",
                lambda: check_all_there(source, ledger, list_landing(landing_root, source)),
            )
    if not lake.table_exists(source.table):
        yield _created(source.table)
        return
    table, current = lake.load_table(source.table), source_columns(lake, source)
    try:
        drift = redeclared(source, current)
    except LakehouseError as error:
        yield _refusal(source.table, "columns", error)
        return
    types = {column.name: column.type for column in current}
    for column in drift.added:
        yield _column(source, column, None, "it is added")
    for column in drift.promoted:
        yield _column(source, column, types[column.name], "it is promoted")
    yield from _refused(
        source.table, "bucket", lambda: check_partitioning(source, [*current, *drift.added])
    ) or _layout(
        table,
        lambda: raw_layout(source).changes(table),
        source.partition_columns <= {*types, *RESERVED_COLUMNS},
    )


def _of_derived(
    lake: Lakehouse, derived: DerivedTable, session: Callable[[], Any]
) -> Iterator[DefinitionChange]:
    missing = [name for name in derived.inputs if not lake.table_exists(name)]
    if not lake.table_exists(derived.name):
        yield _created(derived.name)
        return
    if missing:
        consequence = f"{', '.join(missing)} is not there: its runs fail until it is materialized"
        yield DefinitionChange(derived.name, "inputs", None, None, "refuse", consequence)
        return
    table, stale = lake.load_table(derived.name), derived.staleness(lake)
    added: set[str] = set()
    if stale.redefined:
        yield DefinitionChange(
            derived.name, "query", None, None, "recompute", _recomputed(stale.partitions)
        )
        try:
            changes = output_changes(table, derived.output_schema(lake, session))
        except Exception as error:  # noqa: BLE001 - an engine's own, of any kind: the query fails
            yield _refusal(derived.name, "query", error)
        else:
            added = {c.what for c in changes if c.before is None}
            yield from changes
    yield from _layout(table, lambda: derived.target.changes(table), not added)


def _recomputed(partitions: Collection[str]) -> str:
    spans = [a if a == b else f"{a} to {b}" for a, b in key_ranges(partitions)]
    if not spans:
        return "its code is another one: the whole table is computed again"
    count = len(partitions)
    return (
        f"its code is another one: {count} partition{'' if count == 1 else 's'} "
        f"{'is' if count == 1 else 'are'} computed again: "
        f"{', '.join(spans[:20])}{', ...' if len(spans) > 20 else ''}"
    )


def _of_plain(lake: Lakehouse, target: AssetTable, code: str) -> Iterator[DefinitionChange]:
    if not lake.table_exists(target.name):
        yield _created(target.name)
        return
    table = lake.load_table(target.name)
    by_others = redefined_partitions(table, code)
    if by_others:
        partitions = ", ".join(name for name in by_others if name)
        of = f" of the partitions {partitions}" if partitions else ""
        consequence = (
            f"its code is another one than that which wrote the rows{of}: materialize it again"
        )
        yield DefinitionChange(
            target.name,
            "code",
            ", ".join(sorted(set(by_others.values()))),
            code,
            "keep",
            consequence,
        )
    yield from _layout(table, lambda: target.changes(table), True)


def _target(
    defs: dg.Definitions, asset: dg.AssetsDefinition, key: dg.AssetKey
) -> AssetTable | None:
    held = (defs.resources or {}).get(asset.get_io_manager_key_for_asset_key(key))
    if not isinstance(held, LakehouseIOManager):
        return None
    return AssetTable.of(key, asset.metadata_by_key.get(key, {}), held.namespace)


def _layout(
    table: Table, changes: Callable[[], Iterable[DefinitionChange]], known: bool
) -> list[DefinitionChange]:
    """Changes of layout; one by a column that a run would add first can only be announced."""
    try:
        return list(changes())
    except LakehouseError as error:
        if known:
            return [_refusal(table.name, "layout", error)]
        consequence = f"it is laid out anew once the columns are added ({error.message})"
        return [DefinitionChange(table.name, "layout", None, None, "evolve", consequence)]


def _refused(table: str, what: str, check: Callable[[], None]) -> list[DefinitionChange]:
    try:
        check()
    except LakehouseError as error:
        return [_refusal(table, what, error)]
    return []


def _refusal(table: str, what: str, error: Exception) -> DefinitionChange:
    message = error.message if isinstance(error, LakehouseError) else str(error)
    return DefinitionChange(table, what, None, None, "refuse", message)


def _created(table: str) -> DefinitionChange:
    return DefinitionChange(table, "table", None, None, "create", "its first run creates it")


def _column(
    source: Source, column: Column, before: str | None, consequence: str
) -> DefinitionChange:
    what = f"column {column.name}"
    return DefinitionChange(source.table, what, before, column.type, "evolve", consequence)
