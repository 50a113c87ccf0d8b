"""Forget landing lines: their rows leave raw, derived and quarantine tables, and every file.

What is derived row by row goes with them; groups, windows and joins that they took part in are
named, and are right once they are computed again. Carried out and recorded as `forget` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import StringType

from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import refresh_state
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.lineage.forget import (
    QUARANTINE,
    Forgetting,
    TableOfPerson,
    carried_out,
    to_expire,
)
from lakehouse.orchestration.lineage.impact import Reached, landed_in, rows_below
from lakehouse.orchestration.lineage.undo_by_rows import Inverse, comparable
from lakehouse.orchestration.lineage.value_traces import ANY_COLUMN, Key, LandedLines
from lakehouse.orchestration.lineage.view_definitions import with_views
from lakehouse.orchestration.lineage.why import Model, asked_table, tables_at
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forget_lines(
    lake: Lakehouse,
    file: str,
    lines: Sequence[int] = (),
    tables: Sequence[str] = (),
    *,
    apply: bool = False,
) -> Forgetting:
    """As `forgotten_lines`, by the checkout's definitions.

    Raises NotFoundError: no such file. InvalidInputError: it landed in several tables, and none is
    named.
    """
    landed = LandedLines(file, frozenset(lines))
    try:
        checkout = checkout_here()
    except NotFoundError:
        derived, others = None, []
    else:
        derived = with_views(lake, checkout.pipeline.derived)
        others = list(checkout.pipeline.others)
    name = _raw_table(lake, derived or {}, landed, tables)
    with spark_when_asked("lakehouse-forget") as session:
        return forgotten_lines(
            lake, derived, name, landed, others=others, session=session, apply=apply
        )


def _raw_table(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    landed: LandedLines,
    tables: Sequence[str],
) -> str:
    """The table that a file landed in: the one that is named, or the only one that knows it."""
    if len(tables) > 1:
        raise InvalidInputError("a file lands in one table: name that one, and derived ones follow")
    if tables:
        return tables[0]
    names = [
        table
        for table in lake.list_tables()
        if table not in derived and not table.endswith(QUARANTINE)
    ]
    matches = [
        name for name in names if _has_lines(lake.load_table(name)) and _knows(lake, name, landed)
    ]
    if not matches:
        raise NotFoundError(f"no table has rows of {landed.file}, as landing_file has it")
    if len(matches) > 1:
        raise InvalidInputError(
            f"{landed.file} landed in {' and '.join(matches)}: name one, --table"
        )
    return matches[0]


def _has_lines(table: Table) -> bool:
    return {LANDING_FILE, LANDING_LINE} <= set(table.schema().column_names)


def _knows(lake: Lakehouse, name: str, landed: LandedLines) -> bool:
    """Whether a table, its quarantine or its ledger knows a file."""
    of_file = LandedLines(landed.file).where()
    beside = filter(lake.table_exists, (name, f"{name}{QUARANTINE}"))
    return bool(landed_in(lake, name, landed.file)) or any(
        lake.load_table(place).scan(of_file).count() for place in beside
    )


def forgotten_lines(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable] | None,
    name: str,
    landed: LandedLines,
    *,
    others: Sequence[str] = (),
    session: Callable[[], SparkSession],
    apply: bool = False,
) -> Forgetting:
    """Delete the rows of landing lines, and the bytes of these rows.

    Those of the raw table, of its quarantine, and of derived tables that have a row of each of
    theirs. Tables that count them among others, and those of functions, are named.

    Args:
        lake: the catalog.
        derived: definitions of tables; None: they are not known.
        name: of the raw table.
        landed: the lines.
        others: tables of functions.
        session: of Spark.
        apply: do it; else only plan.

    Raises:
        NotFoundError: neither the table, its quarantine nor its ledger knows the file.
        InvalidInputError: a table without landing lines, or more than can be followed at once.
        MaintenanceRefusedError: branches or tags hold the rows; nothing was done.
        LakehouseError: a file cannot be searched; what was done before stays done.
    """
    if not _has_lines(asked_table(lake, name)):
        raise InvalidInputError(f"{name} has no landing lines: ask with --where instead")
    if not _knows(lake, name, landed):
        raise NotFoundError(f"{name}, its quarantine and its ledger know no file {landed.file}")
    below = rows_below(lake, derived or {}, name, landed.where(), session)
    gone = {
        reached.table: reached.rows
        for reached in below[:1]
        if reached.table == name and reached.rows is not None
    }
    below = below[len(gone) :]
    planned, follow = list[TableOfPerson](), list[str]()
    for reached in below:
        definition = (derived or {})[reached.table]
        rows = _gone(lake, definition, reached, gone, follow, session)
        if rows is not None:
            planned.append(_derived_rows(lake, reached.table, rows, landed))
            gone[reached.table] = rows
        else:
            follow.append(reached.table)
    hit = {table for table, rows in gone.items() if rows.num_rows} | {*follow}
    follow += [
        view
        for view in others
        if lake.table_exists(view)
        and (state := refresh_state(lake.load_table(view))) is not None
        and hit & set(state.inputs)
    ]
    places = [place for place in (f"{name}{QUARANTINE}", name) if lake.table_exists(place)]
    # what tells which rows are derived from the lines goes last
    planned = [*reversed(planned), *(_landed_rows(lake, place, landed) for place in places)]
    column = LANDING_LINE if landed.lines else LANDING_FILE
    numbers = ", ".join(map(str, sorted(landed.lines)))
    whose = f"line {numbers} of {landed.file}" if landed.lines else f"all lines of {landed.file}"
    plan = Forgetting(
        column, whose, tuple(planned), tuple(follow), derived_known=derived is not None
    )
    return carried_out(lake, plan, _key(())) if apply else plan


def _gone(
    lake: Lakehouse,
    definition: DerivedTable,
    reached: Reached,
    gone: Mapping[str, pa.Table],
    follow: Sequence[str],
    session: Callable[[], SparkSession],
) -> pa.Table | None:
    """Rows of a derived table that are of what goes alone; None: it has to be computed again."""
    query, rows = definition.query, reached.rows
    if query is None or rows is None or set(follow) & set(definition.inputs):
        return None
    tables, _ = tables_at(lake, definition.inputs, {})
    if len(tables) < len(definition.inputs):
        return None
    given = {input_name: gone[input_name] for input_name in definition.inputs if input_name in gone}
    model = Model(query, tables, definition.name, session)
    only = model.rows_only_of(given, rows)
    if only is None:
        return None if rows.num_rows or _is_behind(lake, reached.table) else rows
    present = Counter(comparable(row.values()) for row in rows.to_pylist())
    if not only <= present:
        return rows  # computed from other rows, or by another query
    kept = []
    for number, row in enumerate(rows.to_pylist()):
        values = comparable(row.values())
        if only[values]:
            only[values] -= 1
            kept.append(number)
    return rows.take(pa.array(kept, pa.int64()))


def _is_behind(lake: Lakehouse, name: str) -> bool:
    """Whether a table was computed from snapshots that are not there any more: forgotten ones."""
    state = refresh_state(lake.load_table(name))
    return state is not None and any(
        at is not None and lake.load_table(input_name).metadata.snapshot_or_none(at) is None
        for input_name, at in state.inputs.items()
        if lake.table_exists(input_name)
    )


def _derived_rows(lake: Lakehouse, name: str, rows: pa.Table, landed: LandedLines) -> TableOfPerson:
    table = lake.load_table(name)
    values = {comparable(row.values()): row for row in rows.to_pylist()}
    gone = Inverse(Counter(comparable(row.values()) for row in rows.to_pylist()), values=values)
    where = gone.where(table)

    def holding() -> Iterator[str]:
        for ref in table.refs() if values else ():
            if ref != "main":
                held = table.scan(where, list(rows.column_names), ref=ref).to_arrow().to_pylist()
                if any(comparable(row.values()) in values for row in held):
                    yield ref

    return TableOfPerson(
        name,
        rows.num_rows,
        to_expire(table),
        tuple(holding()),
        {},
        _key(_texts_in(table, rows)),
        where,
        landed,
        gone,
    )


def _landed_rows(lake: Lakehouse, name: str, landed: LandedLines) -> TableOfPerson:
    table, where = lake.load_table(name), landed.where()
    numbers: set[int] = set()
    texts: dict[str, None] = {}
    count = 0
    for batch in table.scan(where).to_batches():
        rows = pa.Table.from_batches([batch])
        count += rows.num_rows
        numbers.update(number for number in rows[LANDING_LINE].to_pylist() if number is not None)
        texts |= dict.fromkeys(_texts_in(table, rows))
    blocked = [ref for ref in table.refs() if ref != "main" and table.scan(where, ref=ref).count()]
    lines = {landed.file: tuple(sorted(numbers))} if numbers else {}
    named = [*texts] if landed.lines else [landed.file, *texts]
    return TableOfPerson(
        name, count, to_expire(table), tuple(blocked), lines, _key(named), where, landed
    )


def _texts_in(table: Table, rows: pa.Table) -> list[str]:
    """Texts of rows, without where they landed."""
    names = [
        field.name
        for field in table.schema().fields
        if isinstance(field.field_type, StringType) and field.name not in (LANDING_FILE, "reason")
    ]
    return [text for name in names for text in rows[name].unique().drop_null().to_pylist()]


def _key(texts: Sequence[str]) -> Key:
    return Key("", ANY_COLUMN, StringType(), tuple(texts))
