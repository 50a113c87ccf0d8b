"""Answers to narrow questions: how tables are joined, what a metric is, how fresh a table is."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.agents.catalog_map import CatalogMap, Stated
from lakehouse.agents.lines import LEGEND, statement_line
from lakehouse.agents.words import quoted, words
from lakehouse.errors import NoSuchTableError
from lakehouse.semantics.binding import split_column
from lakehouse.semantics.claims import Kind
from lakehouse.table import Table

_HOPS = 4


def join_path(catalog: CatalogMap, start: str, goal: str) -> str:
    """The shortest chain of joins that statements declare, a line each, and grains on the way.

    Contradicted joins are used only where nothing else leads there, and are marked.

    Raises:
        NoSuchTableError: there is no such table.
    """
    for name in (start, goal):
        _check_table(catalog, name)
    joins = [statement for statement in catalog.statements if statement.draft.kind is Kind.JOIN]
    sound = [join for join in joins if not join.contradicted]
    chain = _chain(catalog, sound, start, goal) or _chain(catalog, joins, start, goal)
    if chain is None:
        return (
            f"{LEGEND}\nNo statement says how {start} and {goal} are joined: equal names of "
            "columns are no proof."
        )
    passed = list(
        dict.fromkeys([start, *(name for join in chain for name in _ends(catalog, join))])
    )
    lines = [f"{join.draft.table}: {_line(join)}" for join in chain]
    for name in passed:
        lines += [
            f"{_head(catalog, name)} {_line(statement)}"
            for statement in catalog.by_table[name]
            if statement.draft.kind is Kind.GRAIN
        ]
    lines += [
        f"{' to '.join(_ends(catalog, join))} is {cardinality}: rows of the one side repeat."
        for join in chain
        if "many" in (cardinality := join.draft.claim["cardinality"])
    ]
    return "\n".join([LEGEND, *lines])


def metric_answer(catalog: CatalogMap, name: str) -> str:
    """Metrics of a name or synonym, with the filters that hold for their tables."""
    phrase = tuple(words(name))
    metrics = [
        statement
        for statement in catalog.statements
        if statement.draft.kind is Kind.METRIC and phrase in statement.phrases
    ]
    if not metrics:
        ranked = catalog.statement_ranking.scores(name)
        similar = [
            catalog.by_key[key].draft.claim["name"]
            for key in sorted(ranked, key=lambda key: -ranked[key])
            if catalog.by_key[key].draft.kind is Kind.METRIC
        ][:5]
        listed = ", ".join(quoted(name) for name in similar) or "none near"
        return f"{LEGEND}\nThere is no metric {quoted(name)}; {listed}."
    lines = [f"{_head(catalog, statement.draft.table)} {_line(statement)}" for statement in metrics]
    tables = dict.fromkeys(
        table
        for statement in metrics
        for table in (statement.draft.table, *statement.draft.claim.get("joins", ()))
        if table in catalog.tables
    )
    lines += [
        f"{table}: {_line(statement)}"
        for table in tables
        for statement in catalog.by_table[table]
        if statement.draft.kind in (Kind.DEPRECATION, Kind.FRESHNESS)
        or (statement.draft.kind is Kind.FILTER and statement.draft.claim.get("mandatory"))
    ]
    return "\n".join([LEGEND, *lines])


def freshness_answer(catalog: CatalogMap, table: Table) -> str:
    """When a table was last written, and the statements about its freshness.

    Raises:
        NoSuchTableError: the map has no such table.
    """
    _check_table(catalog, table.name)
    snapshot = table.current_snapshot()
    if snapshot is None:
        written = "no snapshot: nothing was written yet"
    else:
        at = snapshot.committed_at.isoformat(timespec="seconds")
        written = f"last written {at} by {snapshot.operation}"
    kinds = (Kind.FRESHNESS, Kind.DEPRECATION, Kind.OWNER)
    lines = [
        _line(statement)
        for statement in catalog.by_table[table.name]
        if statement.draft.kind in kinds
    ]
    return "\n".join([LEGEND, f"{_head(catalog, table.name)} {written}", *lines])


def map_answer(catalog: CatalogMap) -> str:
    """All tables, a line each: what they are, their rows and their snapshot."""
    lines = []
    for name in catalog.tables:
        marks = [
            statement_line(statement.draft, statement.standing)
            for statement in catalog.by_table[name]
            if statement.draft.column is None
            and statement.draft.kind in (Kind.DESCRIPTION, Kind.DEPRECATION)
        ]
        lines.append(" ".join([_head(catalog, name), *marks]))
    return "\n".join([LEGEND, *lines])


def _check_table(catalog: CatalogMap, name: str) -> None:
    if name not in catalog.tables:
        listed = ", ".join(list(catalog.tables)[:10])
        raise NoSuchTableError(f"There is no table {name}; there are {listed}", table=name)


def _head(catalog: CatalogMap, name: str) -> str:
    table = catalog.tables[name]
    rows = "" if table.rows is None else f" rows={table.rows}"
    return f"{name} snapshot={table.snapshot_id}{rows}"


def _line(statement: Stated) -> str:
    return statement_line(statement.draft, statement.standing)


def _ends(catalog: CatalogMap, join: Stated) -> tuple[str, str]:
    """The tables of a join, that of the statement first."""
    draft = join.draft
    return draft.table, split_column(draft.claim["to"][0], draft.table, catalog.tables)[0]


def _chain(
    catalog: CatalogMap, joins: Sequence[Stated], start: str, goal: str
) -> list[Stated] | None:
    """The fewest joins from one table to another; None when there are none."""
    ways: list[tuple[str, list[Stated]]] = [(start, [])]
    seen = {start}
    for _ in range(_HOPS):
        longer: list[tuple[str, list[Stated]]] = []
        for at, way in ways:
            for join in joins:
                table, other = _ends(catalog, join)
                other_end = other if at == table else table
                if at not in (table, other) or other_end in seen:
                    continue
                if other_end == goal:
                    return [*way, join]
                longer.append((other_end, [*way, join]))
        seen |= {at for at, _ in longer}
        ways = longer
    return None
