"""The domain as a lakehouse: tables, statements bound to them, what happens to them later."""

from __future__ import annotations

import datetime as dt
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse as lh
from benchmarks.agent_catalog.domain import nordlicht_evolution, nordlicht_tables
from lakehouse.curation.checkup import Checked, accept, check_statements
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from lakehouse.environment import Environment
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.semantics.statements import Draft

SEMANTICS = Path(__file__).parent / "semantics"
AS_OF = nordlicht_tables.AS_OF
Tables = dict[str, pa.Table]


@dataclass
class World:
    """A lakehouse of the domain at one seed.

    Attributes:
        lake: the lakehouse.
        tables: its rows as Arrow tables, which queries are graded against.
        checked: the statements with their states.
    """

    lake: lh.Lakehouse
    tables: Tables
    checked: list[Checked]


def environment(seed: int) -> Environment:
    """A clock that starts at the domain's present and moves a millisecond a look; ids by seed."""
    rng = random.Random(seed)
    now = [int(AS_OF.timestamp() * 1000)]

    def now_ms() -> int:
        now[0] += 1
        return now[0]

    return Environment(
        now_ms=now_ms,
        new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
        random=rng.random,
        sleep=time.sleep,
    )


def drafts() -> list[Draft]:
    """The statements of the domain's catalog."""
    return [
        draft
        for file in sorted(SEMANTICS.glob("*.yaml"))
        for draft in parse_statements(file.read_text("utf-8"), file.name)
    ]


def build(seed: int, scale: float = 1.0, statements: list[Draft] | None = None) -> World:
    """The domain before anything happened to it, statements accepted and checked."""
    lake = lh.load_catalog(f"memory://nordlicht{uuid.uuid4().hex}", environment=environment(seed))
    return fill(lake, seed, scale, statements)


def fill(
    lake: lh.Lakehouse, seed: int, scale: float = 1.0, statements: list[Draft] | None = None
) -> World:
    """The domain in an empty lakehouse."""
    tables = nordlicht_tables.tables(seed, scale)
    for name, table in tables.items():
        lake.create_table(name, table.schema).append(table)
    return World(lake, tables, state_all(lake, drafts() if statements is None else statements))


def state_all(lake: lh.Lakehouse, statements: list[Draft]) -> list[Checked]:
    """Bind, accept and check statements."""
    seen = survey(lake)
    names = {table.name: table for table in seen.names.values()}
    bound = [bind(statement, names, seen.now_ms) for statement in statements]
    StatementStore(lake).put(bound)
    accept(lake, bound, "data owners")
    return check_statements(lake)


def evolve(world: World) -> World:
    """All steps of the evolution on the Iceberg tables, then the check of all statements."""
    tables = world.tables
    for step in nordlicht_evolution.evolve(tables):
        after = step["apply"](tables)
        for name in sorted(set(tables) | set(after)):
            if tables.get(name) is not after.get(name):
                _change(world.lake, name, tables.get(name), after.get(name), step["ops"])
        tables = after
    return World(world.lake, tables, check_statements(world.lake))


def _change(
    lake: lh.Lakehouse,
    name: str,
    before: pa.Table | None,
    after: pa.Table | None,
    ops: list[dict[str, Any]],
) -> None:
    if after is None:
        lake.drop_table(name)
        return
    if before is None:
        lake.create_table(name, after.schema).append(after)
        return
    table = lake.load_table(name)
    if before.schema != after.schema:
        _change_schema(table, before.schema, after.schema, ops)
    ordered = after.select(table.schema().as_arrow().names)
    old = before.rename_columns(_renamed(before.schema.names, ops))
    if old.equals(after):
        return
    if after.num_rows > before.num_rows and after.slice(0, before.num_rows).equals(old):
        table.append(ordered.slice(before.num_rows))
    elif any(op["op"] in ("rewrite", "append", "delete") for op in ops):
        table.overwrite(ordered)


def _renamed(names: list[str], ops: list[dict[str, Any]]) -> list[str]:
    new = {op["column"]: op["to"] for op in ops if op["op"] == "rename"}
    return [new.get(name, name) for name in names]


def _change_schema(
    table: lh.Table, before: pa.Schema, after: pa.Schema, ops: list[dict[str, Any]]
) -> None:
    """Columns renamed, dropped, added and promoted.

    What Iceberg cannot promote becomes another column of the same name.
    """
    renamed = dict(zip(_renamed(before.names, ops), before.names, strict=True))
    for new, old in renamed.items():
        if new != old:
            _alter(table, lambda s, o=old, n=new: s.rename_column(o, n))
    for column in renamed.keys() - set(after.names):
        _alter(table, lambda s, c=column: s.drop_column(c))
    for field in after:
        if field.name not in renamed:
            _alter(table, lambda s, f=field: s.add_column(f.name, f.type))
        elif before.field(renamed[field.name]).type != field.type:
            _retype(table, field)
    previous = None
    for column in after.names:
        if previous is not None:
            _alter(table, lambda s, c=column, p=previous: s.move_after(c, p))
        previous = column


def _retype(table: lh.Table, field: pa.Field) -> None:
    try:
        _alter(table, lambda s: s.update_column(field.name, field.type))
    except lh.InvalidSchemaError:
        _alter(table, lambda s: s.drop_column(field.name))
        _alter(table, lambda s: s.add_column(field.name, field.type))


def _alter(table: lh.Table, change: Callable[[Any], object]) -> None:
    with table.update_schema() as schema:
        change(schema)


def today() -> dt.date:
    """The domain's present day."""
    return AS_OF.date()
