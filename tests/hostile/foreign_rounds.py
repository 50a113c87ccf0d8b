"""Rounds over tables of strangers: read on every way out, beside brute force over their rows.

A table that only uses what the specification allows has to give the right answer. Of a bent one a
typed error or the right answer is asked for, as its bend says.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

import lakehouse as lh
from lakehouse.spec.schema.schema_json import schema_to_json
from tests.hostile.foreign_bends import BENDS, Bend
from tests.hostile.foreign_mutants import Mutant
from tests.hostile.foreign_stories import (
    VALUES,
    Column,
    Layout,
    Many,
    Pairs,
    Row,
    Story,
    Struct,
    at,
    field_json,
    leaves,
    token,
)

COMPARED = ("int", "long", "string", "date", "boolean", "double")


@dataclass
class Found:
    """What came of the rounds.

    Attributes:
        outcomes: (bend or `legal`, what came of it) -> how often.
        faults: what must not happen, with how to repeat it.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Strangers:
    """Tables of strangers in a folder, one a round.

    Args:
        folder: a new one.
        bent: share of the tables that are bent.
        taken: share of rounds in which we take in a file without ids instead.
        bends: names of the ways to bend them; all when empty.
        only_bent: whether a table that cannot be bent in these ways is asked nothing.
    """

    def __init__(
        self,
        folder: Path,
        bent: float = 0.6,
        bends: Sequence[str] = (),
        taken: float = 0,
        *,
        only_bent: bool = False,
    ) -> None:
        self._folder, self._bent, self._taken = folder, bent, taken
        self._only_bent = only_bent
        self._bends = [bend for bend in BENDS if not bends or bend.name in bends]
        folder.mkdir(parents=True, exist_ok=True)
        self._lake = lh.load_catalog(
            f"sqlite:///{folder}/catalog.db", warehouse=(folder / "warehouse").as_uri()
        )
        self._lake.create_namespace("a")

    @classmethod
    def of(cls, folder: Path, mutant: Mutant) -> Strangers:
        """Those that can show a fault."""
        bent, taken = float(bool(mutant.bends)), float(mutant.taken)
        return cls(folder, bent=bent, bends=mutant.bends, taken=taken)

    def round(self, seed: int, found: Found) -> None:
        """Write a table, read it, throw it away."""
        rng = random.Random(f"round {seed}")
        name = f"t{seed}"
        if self._taken and rng.random() < self._taken:
            self._take_in(rng, seed, found)
            return
        place = self._folder / "warehouse" / "a" / name
        story = Story(seed, place)
        bend = self._bend(rng, story) if rng.random() < self._bent else None
        if bend is None and self._only_bent:
            return
        kind = "legal" if bend is None else bend.name
        location = story.table.write(place)
        try:
            outcome = self._ask(rng, story, bend, name, location)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            outcome = "fault"
            trace = traceback.format_exc(limit=-3)
            found.faults.append(f"seed {seed}, {kind}: {error!r:.1500}\n{trace:.1500}")
        found.outcomes[kind, outcome] += 1
        shutil.rmtree(place)

    def _take_in(self, rng: random.Random, seed: int, found: Found) -> None:
        """A file without ids: refused by name, or there and read right."""
        story = Story(seed, self._folder / "none", steps=0)
        how, rows, file = landed(rng, story)
        required = [rng.random() < 0.1 for _ in story.columns]
        fields = [
            {**field_json(one), "required": its}
            for one, its in zip(story.columns, required, strict=True)
        ]
        table = self._lake.create_table(
            f"a.t{seed}",
            Schema.model_validate({"type": "struct", "fields": fields}),
            format_version=story.version if story.version > 1 else 2,
        )
        path = Path(table.location.removeprefix("file://"), "landed.parquet")
        pq.write_table(file, path, store_schema=rng.random() < 0.5)
        try:
            table.add_files([path.as_uri()])
        except lh.LakehouseError as error:
            outcome = f"refused: {type(error).__name__}"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            outcome = "fault"
            found.faults.append(f"seed {seed}, {how}: add_files raises {error!r:.1500}")
        else:
            outcome = "right"
            try:
                got, right = shown_arrow(table.scan().to_arrow()), shown(rows, story.columns)
                if got != right:
                    raise AssertionError(f"gives {got}\n right {right}")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001 - likewise
                outcome = "fault"
                found.faults.append(f"seed {seed}, {how}, taken in: {error!r:.1500}")
        found.outcomes[how, outcome] += 1
        self._lake.drop_table(f"a.t{seed}")

    def _bend(self, rng: random.Random, story: Story) -> Bend | None:
        """A way that the table has something for."""
        shuffled = rng.sample(self._bends, len(self._bends))
        return next((bend for bend in shuffled if bend.apply(rng, story)), None)

    def _ask(
        self, rng: random.Random, story: Story, bend: Bend | None, name: str, location: str
    ) -> str:
        """What came of it: `right` or `refused`. Raises what must not come."""
        name = f"a.{name}"
        refusals: list[str] = []
        expected = shown(story.rows(), story.columns)

        def answer(question: str, ask: Callable[[], Any], right: Any) -> None:
            try:
                got = ask()
            except lh.LakehouseError as error:
                if bend is None or bend.asks == "right":
                    raise
                refusals.append(type(error).__name__)
                return
            if got != right:
                raise AssertionError(f"{question}\n  gives {got}\n  right {right}")
            if bend is not None and bend.asks == "error" and question == "rows":
                raise AssertionError(f"{question} gives an answer where an error is asked for")

        try:
            table = self._lake.register_table(name, location)
        except lh.LakehouseError as error:
            if bend is None or bend.asks == "right":
                raise
            return f"refused: {type(error).__name__}"
        try:
            schema = max(story.table.schemas, key=lambda one: one["schema-id"])
            types = lambda: schema_to_json(table.schema())["fields"]  # noqa: E731
            answer("schema", types, schema["fields"])
            rows = lambda one: shown_arrow(one.to_arrow())  # noqa: E731
            answer("rows", lambda: rows(table.scan()), expected)
            if bend is None or not bend.counts_lie:
                answer("count", lambda: table.scan().count(), len(expected))
                empty = lambda: table.scan(select=[])  # noqa: E731
                answer("no column", lambda: empty().to_arrow().num_rows, len(expected))
                batches = lambda: sum(one.num_rows for one in empty().to_batches())  # noqa: E731
                answer("batches without columns", batches, len(expected))
            answer("polars", lambda: table.scan(select=["id"]).to_polars().height, len(expected))
            judged = bend is None or not bend.filters_lie
            for where, right in filters(rng, story) if judged else ():
                kept = shown([row for row in story.rows() if right(row)], story.columns)
                answer(where, lambda: rows(table.scan(where=where)), kept)  # noqa: B023
                if bend is None or not bend.counts_lie:
                    answer(f"count {where}", lambda: table.scan(where=where).count(), len(kept))  # noqa: B023
            if story.version > 1 and rng.random() < (0.3 if bend is None else 0.6):
                self._change(rng, table, story, answer)
        finally:
            self._lake.drop_table(name)
        return f"refused: {refusals[0]}" if refusals else "right"

    def _change(
        self, rng: random.Random, table: lh.Table, story: Story, answer: Callable[..., None]
    ) -> None:
        """What we write into such a table changes no other answer."""
        verb = rng.choice(["compact", "delete", "manifests"])
        left = story.rows()

        def run() -> Any:
            if verb == "compact":
                stopped = table.compact(lh.CompactionOptions(rewrite_all=True)).stopped
                if stopped is not None:  # there is nobody else
                    raise AssertionError(stopped)
            elif verb == "delete":
                table.delete(where="id < 30")
            else:
                table.rewrite_manifests()
            return shown_arrow(table.refresh().scan().to_arrow())

        if verb == "delete":
            left = [row for row in left if not (row[1] is not None and row[1] < 30)]
        answer(f"rows after {verb}", run, shown(left, story.columns))


def rounds_of(seeds: range) -> Found:
    """Rounds in a folder of their own, some with a file that we take in."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        strangers = Strangers(Path(folder) / "strangers", taken=0.1)
        for seed in seeds:
            strangers.round(seed, found)
    return found


def landed(rng: random.Random, story: Story) -> tuple[str, list[Row], pa.Table]:
    """A file as it lies somewhere: what is odd about it, its rows, and its columns."""
    columns = story.columns
    rows = [{one.field_id: story.value(one.kind) for one in columns} for _ in range(4)]
    plain = {kind: [one for one in columns if one.kind == kind] for kind in VALUES}
    bits = rng.choice([8, 31, 31])
    odd: list[tuple[str, Column, Any, pa.DataType]] = [
        ("unsigned", one, 2**bits + 5, pa.uint32()) for one in plain["int"]
    ]
    odd += [("unsigned", one, 2 ** (2 * bits + 1) + 5, pa.uint64()) for one in plain["long"]]
    odd += [("wider", one, 2**40, pa.int64()) for one in plain["int"]]
    odd += [("half floats", one, 0.25, pa.float16()) for one in plain["float"]]
    odd += [("no text", one, b"a\xff", pa.binary()) for one in plain["string"]]
    odd += [("far", one, 2**53, pa.timestamp("s")) for one in plain["timestamp"]]
    layout = Layout(rng, ids=False)
    how = rng.choice(["plain", "twice", "lacking", "odd", "odd"])
    if how == "lacking":
        gone = rng.choice(columns)
        columns = tuple(one for one in columns if one is not gone)
        rows = [{**row, gone.field_id: None} for row in rows]
    if how != "odd" or not odd:
        file = layout.table(rows, columns)
        if how == "twice" and columns:
            file = file.append_column(file.schema.field(0), file.column(0))
        return f"taken in: {how}", rows, file
    how, column, value, kind = rng.choice(odd)
    numbers = {one: n for n, one in enumerate(columns)}
    file = layout.table(rows, columns)
    cells = [None if row[column.field_id] is None else value for row in rows]
    for row, cell in zip(rows, cells, strict=True):
        row[column.field_id] = cell
    half = kind == pa.float16()
    if half:
        cells = [None if one is None else np.float16(one) for one in cells]
    array = pa.array(cells, kind)
    if how == "no text":
        array = array.cast(pa.string(), safe=False)
    return (
        f"taken in: {how}",
        rows,
        file.set_column(numbers[column], pa.field(column.name, array.type), array),
    )


def named(value: Any, kind: Any) -> Any:
    """A value as Arrow's `to_pylist` gives it, comparable."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        return tuple((one.name, named(value[one.field_id], one.kind)) for one in kind.fields)
    if isinstance(kind, Many):
        return tuple(named(one, kind.element) for one in value)
    if isinstance(kind, Pairs):
        return tuple((key, named(one, kind.value)) for key, one in value)
    return token(value)


def shown(rows: Sequence[Row], columns: Sequence[Column]) -> list[Any]:
    """Rows of the story, in an order that does not depend on files."""
    whole = Struct(tuple(columns))
    return sorted((named(row, whole) for row in rows), key=repr)


def shown_arrow(table: pa.Table) -> list[Any]:
    """Rows that came, likewise."""
    return sorted((_plain(row) for row in table.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _plain(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return token(value)


def filters(rng: random.Random, story: Story) -> Iterator[tuple[str, Callable[[Row], bool]]]:
    """Conditions in SQL, and whether a row meets them."""
    ways = list(leaves(story.columns))
    for path in rng.sample(ways, min(2, len(ways))):
        kind, name = str(path[-1].kind), ".".join(one.name for one in path)
        there = [at(row, path) for row in story.rows()]
        value = rng.choice([one for one in there if one is not None] or [None])
        if kind not in COMPARED or value is None or rng.random() < 0.3:
            yield f"{name} is null", lambda row, path=path: at(row, path) is None
            yield f"{name} is not null", lambda row, path=path: at(row, path) is not None
            continue
        if (isinstance(value, float) and value != 1.5) or value == "\U0010ffff" * 20:
            continue
        text = f"'{value}'" if isinstance(value, (str, dt.date)) else str(value).lower()
        yield f"{name} = {text}", lambda row, path=path, v=value: at(row, path) == v
        if kind in ("int", "long", "string", "date"):
            yield (
                f"{name} <= {text}",
                lambda row, path=path, v=value: at(row, path) is not None and at(row, path) <= v,
            )
            yield (
                f"{name} > {text}",
                lambda row, path=path, v=value: at(row, path) is not None and at(row, path) > v,
            )
