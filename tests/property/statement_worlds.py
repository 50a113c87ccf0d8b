"""Lakehouses that change at random, statements about them, and the truth by brute force over rows.

The model keeps rows as dictionaries by column identity. It knows nothing of files, metadata or
checks: what is true is decided by plain Python over the rows that the model holds.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse as lh
from lakehouse.curation.checkup import accept
from lakehouse.curation.gathering import table_names
from lakehouse.curation.statement_store import StatementStore
from lakehouse.environment import Environment
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements

KINDS = {
    "long": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "date": pa.date32(),
    "decimal": pa.decimal128(12, 2),
}
ORDERS = {
    "order_id": "long",
    "customer_id": "long",
    "code": "string",
    "amount": "decimal",
    "qty": "int",
    "note": "string",
    "day": "date",
}
CUSTOMERS = {"id": "long", "country": "string"}
TOTALS = {"day": "date", "total": "decimal"}
START = dt.date(2025, 1, 1)

STATEMENTS = """
table: raw.orders
author: tests
statements:
- {id: key, kind: grain, key: [order_id], evidence: {check: unique, columns: [order_id]}}
- {id: pair, kind: grain, key: [order_id, code],
   evidence: {check: unique, columns: [order_id, code]}}
- id: customer
  kind: join
  from: [customer_id]
  to: [crm.customers.id]
  cardinality: many_to_one
  evidence: {check: references, column: customer_id, to: crm.customers.id, except: [-1]}
- id: codes
  kind: codes
  column: code
  values: {A: active, B: booked, C: closed}
  evidence: {check: values, column: code, allowed: [A, B, C]}
- id: codes used
  kind: codes
  column: code
  values: {A: active, B: booked, C: closed}
  evidence: {check: values, column: code, allowed: [A, B, C], all_used: true}
- id: range
  kind: unit
  column: amount
  unit: EUR
  evidence: {check: bounds, column: amount, min: 0, max: 1000}
- id: range of large orders
  kind: unit
  column: amount
  unit: EUR
  evidence: {check: bounds, column: amount, min: 0, max: 500, where: qty > 5}
- {id: present, kind: warning, column: qty, evidence: {check: null_share, column: qty}}
- {id: some notes, kind: warning, column: note,
   evidence: {check: null_share, column: note, min: 0.1, max: 0.6}}
- {id: form, kind: warning, column: note,
   evidence: {check: pattern, column: note, regex: "n[0-9]+", min: 0.9}}
- {id: recent, kind: freshness, column: day,
   evidence: {check: newest, column: day, at_least: 2025-01-20}}
- {id: stopped, kind: freshness, column: day,
   evidence: {check: newest, column: day, at_most: 2025-02-10}}
- {id: per customer, kind: warning, evidence: {check: row_ratio, to: crm.customers, min: 1, max: 8}}
- id: per large customer
  kind: warning
  evidence: {check: row_ratio, to: crm.customers, max: 4, where: qty > 5,
              to_where: "country = 'DE'"}
- id: totals
  kind: metric
  name: sales
  expression: sum(amount)
  evidence: {check: sum_equal, column: amount, to: marts.totals.total}
- id: cents
  kind: unit
  column: amount
  unit: EUR
  evidence: {check: sum_equal, column: amount, factor: 100, to: marts.totals.total,
              to_factor: 100, where: qty > 0}
- id: asked
  kind: warning
  evidence:
    check: query
    sql: >-
      select min(o.qty) >= 1 and count(*) > 0
      from raw.orders o join crm.customers c on c.id = o.customer_id
- {id: described, kind: description, column: note, text: What the customer wrote.}
- {id: measured, kind: metric, name: average, expression: sum(amount) / sum(qty),
   text: Average price.}
"""


class Column:
    """A column by its identity."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind


@dataclass
class Model:
    """A table as the oracle sees it."""

    name: str
    columns: list[Column]
    rows: list[dict[Column, Any]] = field(default_factory=list)
    first: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, kinds: dict[str, str]) -> Model:
        columns = [Column(column, kind) for column, kind in kinds.items()]
        return cls(name, columns, [], {column.name: column for column in columns})

    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, KINDS[column.kind]) for column in self.columns])

    def arrow(self, rows: list[dict[Column, Any]]) -> pa.Table:
        plain = [{column.name: row.get(column) for column in self.columns} for row in rows]
        return pa.Table.from_pylist(plain, schema=self.schema())

    def has(self, *names: str) -> bool:
        return all(self.first[name] in self.columns for name in names)

    def values(self, name: str) -> list[Any]:
        column = self.first[name]
        return [row.get(column) for row in self.rows]


class World:
    """A lakehouse of three tables, its model, and a random source of changes."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.lake = lh.load_catalog(
            f"sqlite:///{folder}/{seed}.db",
            warehouse=f"memory://{folder.name}-{seed}",
            environment=Environment.seeded(seed),
        )
        self.ids = itertools.count(1)
        self.fresh = itertools.count()
        self.models = {
            "orders": Model.of("raw.orders", ORDERS),
            "customers": Model.of("crm.customers", CUSTOMERS),
            "totals": Model.of("marts.totals", TOTALS),
        }
        mode = self.rng.choice(["copy-on-write", "merge-on-read"])
        for model in self.models.values():
            self.lake.create_table(
                model.name,
                model.schema(),
                properties={"write.delete.mode": mode},
                format_version=self.rng.choice([2, 3]),
            )
        customers = self.models["customers"]
        made = [
            self.row(customers, {"id": n, "country": self.rng.choice(["DE", "FR"])})
            for n in range(1, 6)
        ]
        self.add(customers, made)
        self.add(self.models["orders"], [self.order() for _ in range(12)])
        self.rebuild_totals()
        tables = [self.lake.load_table(model.name) for model in self.models.values()]
        names = {table.name: table_names(table) for table in tables}
        drafts = parse_statements(STATEMENTS)
        self.statements = [bind(draft, names, self.lake.environment.now_ms()) for draft in drafts]
        StatementStore(self.lake).put(self.statements)
        accept(self.lake, self.statements, "tests")

    def row(self, model: Model, values: dict[str, Any]) -> dict[Column, Any]:
        return {model.first[name]: value for name, value in values.items() if model.has(name)}

    def order(self, **odd: Any) -> dict[Column, Any]:
        rng = self.rng
        values = {
            "order_id": next(self.ids),
            "customer_id": rng.choice([-1, 1, 2, 3, 4, 5]),
            "code": rng.choice("ABC"),
            "amount": Decimal(rng.randrange(0, 50_000)).scaleb(-2),
            "qty": rng.randrange(1, 12),
            "note": rng.choice([None, None, f"n{rng.randrange(99)}", f"n{rng.randrange(99)}"]),
            "day": START + dt.timedelta(days=rng.randrange(15, 35)),
        }
        return self.row(self.models["orders"], {**values, **odd})

    def add(self, model: Model, rows: list[dict[Column, Any]]) -> None:
        model.rows += rows
        self.lake.load_table(model.name).append(model.arrow(rows))

    def rewrite(self, model: Model, rows: list[dict[Column, Any]]) -> None:
        model.rows = rows
        self.lake.load_table(model.name).overwrite(model.arrow(rows))

    def rebuild_totals(self) -> None:
        orders, totals = self.models["orders"], self.models["totals"]
        if not (orders.has("day", "amount") and totals.has("day", "total")):
            return
        by_day: dict[Any, Decimal] = {}
        for day, amount in zip(orders.values("day"), orders.values("amount"), strict=True):
            by_day[day] = by_day.get(day, Decimal(0)) + (amount or Decimal(0))
        self.rewrite(
            totals,
            [self.row(totals, {"day": day, "total": total}) for day, total in by_day.items()],
        )

    # Changes; each returns whether it could have changed rows

    def step(self) -> tuple[str, bool]:
        """One change at random: its name, and whether it may have changed rows."""
        name = self.rng.choice(list(CHANGES))
        return name, CHANGES[name](self)

    def append_usual(self) -> bool:
        self.add(self.models["orders"], [self.order() for _ in range(self.rng.randrange(1, 5))])
        return True

    def append_odd(self) -> bool:
        rng = self.rng
        odd: dict[str, Any] = rng.choice(
            [
                {"order_id": rng.randrange(1, 12)},
                {"customer_id": 99},
                {"customer_id": None},
                {"code": rng.choice(["D", "b", None])},
                {"amount": Decimal("1000.01")},
                {"amount": Decimal("-0.01")},
                {"amount": Decimal("700.00"), "qty": 9},
                {"qty": None},
                {"qty": 0},
                {"note": "other"},
                {"day": START + dt.timedelta(days=rng.choice([0, 45]))},
                {"day": None},
            ]
        )
        self.add(self.models["orders"], [self.order(**odd), self.order()])
        return True

    def delete_some(self) -> bool:
        model = self.models["orders"]
        column = self.rng.choice([one for one in ("qty", "code", "day") if model.has(one)] or [""])
        values = sorted({one for one in model.values(column) if one is not None}) if column else []
        if not values:
            return False
        value = self.rng.choice(values)
        model.rows = [row for row in model.rows if row.get(model.first[column]) != value]
        literal = value if isinstance(value, int) else f"'{value}'"
        self.lake.load_table(model.name).delete(f"{model.first[column].name} = {literal}")
        return True

    def overwrite_some(self) -> bool:
        """One column of some rows, as an UPDATE does."""
        model, rng = self.models["orders"], self.rng
        name = rng.choice([order for order in ORDERS if model.has(order)])
        column = model.first[name]
        rows = []
        for row in model.rows:
            new = self.order().get(column) if rng.random() < 0.3 else row.get(column)
            rows.append({**row, column: new})
        self.rewrite(model, rows)
        return True

    def rewrite_alike(self) -> bool:
        model = self.models["orders"]
        rows = list(model.rows)
        self.rng.shuffle(rows)
        self.rewrite(model, rows)
        return True

    def change_customers(self) -> bool:
        model, rng = self.models["customers"], self.rng
        if not model.has("id"):
            return False
        if rng.random() < 0.6:
            self.add(model, [self.row(model, {"id": 100 + next(self.fresh), "country": "DE"})])
        elif model.rows:
            gone = rng.choice(model.values("id"))
            model.rows = [row for row in model.rows if row.get(model.first["id"]) != gone]
            if gone is not None:
                name = model.first["id"].name
                self.lake.load_table(model.name).delete(f"{name} = {gone}")
        return True

    def refresh_totals(self) -> bool:
        self.rebuild_totals()
        return True

    def compact(self) -> bool:
        self.lake.load_table(self.models["orders"].name).compact()
        return False

    def roll_back(self) -> bool:
        """A rollback restores rows of one table; the model asks the snapshot itself, by field."""
        model = self.models["orders"]
        table = self.lake.load_table(model.name)
        history = table.history()
        if len(history) < 2:
            return False
        table.rollback_to(history[-2].snapshot_id)
        names = {column.name: column for column in model.columns}
        model.rows = [
            {names[key]: value for key, value in row.items()}
            for row in table.scan().to_arrow().to_pylist()
        ]
        return True

    def rename_column(self) -> bool:
        model = self.rng.choice(list(self.models.values()))
        column = self.rng.choice(model.columns)
        new = f"{column.name.split('_x')[0]}_x{next(self.fresh)}"
        with self.lake.load_table(model.name).update_schema() as schema:
            schema.rename_column(column.name, new)
        column.name = new
        return False

    def swap_names(self) -> bool:
        """Two columns take each other's names: who goes by name is wrong about both."""
        model = self.models["orders"]
        if not model.has("code", "note"):
            return False
        one, other = model.first["code"], model.first["note"]
        table = self.lake.load_table(model.name)
        with table.update_schema() as schema:
            schema.rename_column(one.name, "swapping")
        with table.update_schema() as schema:
            schema.rename_column(other.name, one.name)
        with table.update_schema() as schema:
            schema.rename_column("swapping", other.name)
        one.name, other.name = other.name, one.name
        return False

    def drop_column(self) -> bool:
        model = self.models["orders"]
        if len(model.columns) < 5 or self.rng.random() < 0.7:
            return False
        column = self.rng.choice(model.columns)
        model.columns.remove(column)
        for row in model.rows:
            row.pop(column, None)
        table = self.lake.load_table(model.name)
        with table.update_schema() as schema:
            schema.drop_column(column.name)
        if self.rng.random() < 0.5:  # its name comes back as another column
            again = Column(column.name, column.kind)
            with table.update_schema() as schema:
                schema.add_column(
                    again.name, "decimal(12, 2)" if again.kind == "decimal" else again.kind
                )
            model.columns.append(again)
        return False

    def add_column(self) -> bool:
        model = self.models["orders"]
        column = Column(f"extra{next(self.fresh)}", "string")
        with self.lake.load_table(model.name).update_schema() as schema:
            schema.add_column(column.name, "string")
        model.columns.append(column)
        return False

    def promote(self) -> bool:
        model = self.models["orders"]
        column = model.first["qty"]
        if not model.has("qty") or column.kind == "long":
            return False
        with self.lake.load_table(model.name).update_schema() as schema:
            schema.update_column(column.name, "long")
        column.kind = "long"
        return False

    def rename_table(self) -> bool:
        model = self.rng.choice(list(self.models.values()))
        new = f"{model.name.split('_x')[0]}_x{next(self.fresh)}"
        self.lake.rename_table(model.name, new)
        model.name = new
        return False

    def set_property(self) -> bool:
        self.lake.load_table(self.models["orders"].name).set_properties(
            {"comment": str(next(self.fresh))}
        )
        return False

    # What is true

    def truth(self) -> dict[str, bool]:
        """Every statement, by brute force."""
        return {name: holds(self.models) for name, holds in ORACLE.items()}


CHANGES: dict[str, Callable[[World], bool]] = {
    name: getattr(World, name)
    for name in (
        "append_usual",
        "append_odd",
        "delete_some",
        "overwrite_some",
        "rewrite_alike",
        "change_customers",
        "refresh_totals",
        "compact",
        "roll_back",
        "rename_column",
        "swap_names",
        "drop_column",
        "add_column",
        "promote",
        "rename_table",
        "set_property",
    )
}

Models = dict[str, Model]


def _of(names: str, check: Callable[..., bool]) -> Callable[[Models], bool]:
    """A truth about columns of orders, false when one of them is gone."""

    def holds(models: Models) -> bool:
        orders = models["orders"]
        wanted = names.split()
        return orders.has(*wanted) and check(*(orders.values(name) for name in wanted))

    return holds


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _share(part: int, whole: int, low: float, high: float) -> bool:
    return not whole or low <= part / whole <= high


def _customers(models: Models) -> bool:
    orders, customers = models["orders"], models["customers"]
    if not (orders.has("customer_id") and customers.has("id")):
        return False
    known = set(customers.values("id"))
    return all(one in known for one in _present(orders.values("customer_id")) if one != -1)


def _ratio(rows: int, others: int, low: float, high: float) -> bool:
    return low <= (rows / others if others else float("inf") if rows else 0) <= high


def _large(models: Models) -> bool:
    orders, customers = models["orders"], models["customers"]
    if not (orders.has("qty") and customers.has("country")):
        return False
    large = sum(1 for one in _present(orders.values("qty")) if one > 5)
    return _ratio(large, customers.values("country").count("DE"), 0, 4)


def _totals(models: Models, *, positive: bool) -> bool:
    orders, totals = models["orders"], models["totals"]
    needed = ("amount", "qty") if positive else ("amount",)
    if not (orders.has(*needed) and totals.has("total")):
        return False
    quantities = orders.values("qty") if positive else [1] * len(orders.rows)
    amounts = zip(orders.values("amount"), quantities, strict=True)
    total = sum((a for a, q in amounts if a is not None and q is not None and q > 0), Decimal(0))
    return total == sum(_present(totals.values("total")), Decimal(0))


def _asked(models: Models) -> bool:
    orders, customers = models["orders"], models["customers"]
    if not (orders.has("qty", "customer_id") and customers.has("id")):
        return False
    known = customers.values("id")
    pairs = zip(orders.values("qty"), orders.values("customer_id"), strict=True)
    joined = [q for q, c in pairs if c is not None for one in known if one == c]
    return bool(joined) and bool(_present(joined)) and min(_present(joined)) >= 1


ORACLE: dict[str, Callable[[Models], bool]] = {
    "key": _of("order_id", lambda ids: len(set(ids)) == len(ids)),
    "pair": _of(
        "order_id code", lambda ids, codes: len(set(zip(ids, codes, strict=True))) == len(ids)
    ),
    "customer": _customers,
    "codes": _of("code", lambda codes: set(_present(codes)) <= set("ABC")),
    "codes used": _of("code", lambda codes: set(_present(codes)) == set("ABC")),
    "range": _of("amount", lambda amounts: all(0 <= one <= 1000 for one in _present(amounts))),
    "range of large orders": _of(
        "amount qty",
        lambda amounts, quantities: all(
            0 <= a <= 500
            for a, q in zip(amounts, quantities, strict=True)
            if a is not None and q is not None and q > 5
        ),
    ),
    "present": _of("qty", lambda values: None not in values),
    "some notes": _of("note", lambda values: _share(values.count(None), len(values), 0.1, 0.6)),
    "form": _of(
        "note",
        lambda values: _share(
            sum(1 for one in _present(values) if re.fullmatch("n[0-9]+", one)),
            len(_present(values)),
            0.9,
            float("inf"),
        ),
    ),
    "recent": _of(
        "day", lambda days: bool(_present(days)) and max(_present(days)) >= dt.date(2025, 1, 20)
    ),
    "stopped": _of(
        "day", lambda days: bool(_present(days)) and max(_present(days)) <= dt.date(2025, 2, 10)
    ),
    "per customer": lambda models: _ratio(
        len(models["orders"].rows), len(models["customers"].rows), 1, 8
    ),
    "per large customer": _large,
    "totals": lambda models: _totals(models, positive=False),
    "cents": lambda models: _totals(models, positive=True),
    "asked": _asked,
    "described": _of("note", lambda _: True),
    "measured": _of("amount qty", lambda *_: True),
}
