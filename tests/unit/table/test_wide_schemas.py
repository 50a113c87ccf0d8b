"""Work grows with the number of columns, not with its square: counted in calls of functions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.spark.spark_types import to_iceberg_schema, to_spark_schema
from lakehouse.spec.metadata.metadata_json import parse, serialize

WIDTH = 400
MOST = 2.2
"""How many times as much twice the columns may take."""


def wide(kind: str, width: int) -> pa.Table:
    columns = {f"c{i}": pa.array([1, 2], pa.int32()) for i in range(width)}
    keys = {"id": pa.array([1, 2], pa.int64()), "part": pa.array(["a", "b"])}
    if kind == "columns":
        return pa.table({**keys, **columns})
    fields = [pa.field(name, pa.int32()) for name in columns]
    within = pa.StructArray.from_arrays(list(columns.values()), fields=fields)
    if kind == "list":
        within = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), within)
    return pa.table({**keys, "s": within})


def calls(work: Callable[[], object]) -> int:
    """Calls of functions, in Python and in C, of all threads that `work` starts."""
    counted = [0]

    def count(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            counted[0] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counted[0]


def history(lake: lh.Lakehouse, kind: str, width: int) -> dict[str, int]:
    """What a table goes through, and the calls of each step."""
    rows = wide(kind, width)
    one = rows.slice(0, 1)
    new = one.set_column(0, "id", pa.array([9], pa.int64()))
    top = [name for name in rows.column_names if name.startswith("c")]
    inside = {"columns": "", "struct": "s.", "list": "s.element."}[kind]
    count: dict[str, int] = {}
    name = f"a.{kind}{width}"

    def step(what: str, work: Callable[[], object]) -> None:
        count[what] = calls(work)

    def evolved(change: Callable[[UpdateSchema, int], object]) -> Callable[[], None]:
        def work() -> None:
            with table.update_schema() as update:
                for i in range(width):
                    change(update, i)

        return work

    step("create", lambda: lake.create_table(name, rows.schema, partition_by=["part"]))
    table = lake.load_table(name)
    step("append", lambda: table.append(rows))
    table.append(rows)
    step("scan", lambda: table.scan().to_arrow())
    step("load", lambda: lake.load_table(name).scan(where="id = 1").to_arrow())
    if top:
        every = " and ".join(f"{column} < 5" for column in top)
        step("filter by every column", lambda: table.scan(where=every).to_arrow())
        loud = [column.upper() for column in top]
        step(
            "select in another case",
            lambda: table.scan(select=loud, case_sensitive=False).to_arrow(),
        )
        step("update of every column", lambda: table.update(dict.fromkeys(top, "7"), where="id=1"))
    step("upsert", lambda: table.upsert(pa.concat_tables([one, new]), keys=["id"]))
    same = {column: f"s.{column}" for column in rows.column_names}
    step(
        "merge",
        lambda: (
            table.merge(rows, on=["id"])
            .when_matched_update(same)
            .when_not_matched_insert(same)
            .execute()
        ),
    )
    step("delete", lambda: table.delete(where="id = 2"))
    step("overwrite", lambda: table.overwrite(rows))
    step("compact", lambda: table.compact(lh.CompactionOptions(rewrite_all=True)))
    step("add", evolved(lambda update, i: update.add_column(f"{inside}n{i}", "int")))
    step("append to older columns", lambda: table.append(rows))
    step("rename", evolved(lambda update, i: update.rename_column(f"{inside}n{i}", f"m{i}")))
    step("promote", evolved(lambda update, i: update.update_column(f"{inside}m{i}", "long")))
    step("move", evolved(lambda update, i: update.move_first(f"{inside}m{i}")))
    step("drop", evolved(lambda update, i: update.drop_column(f"{inside}m{i}")))
    step("union", lambda: union(table, kind, width))
    step("scan after all", lambda: table.scan().to_arrow())
    step("metadata", lambda: parse(serialize(table.metadata), name))
    step("Spark's schema", lambda: to_iceberg_schema(to_spark_schema(table.schema())))
    return count


def union(table: lh.Table, kind: str, width: int) -> None:
    with table.update_schema() as update:
        update.union_by_name(wide(kind, 2 * width).schema)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["columns", "struct", "list"])
def test_twice_the_columns_take_twice_the_work(kind, tmp_path, monkeypatch):
    lake = lh.load_catalog(tmp_path.as_uri())
    monkeypatch.setattr(pa, "cpu_count", lambda: 1)  # threads that start together share less
    history(lake, kind, 8)  # modules are loaded, pools started
    narrow, twice = history(lake, kind, WIDTH), history(lake, kind, 2 * WIDTH)
    grown = {step: round(twice[step] / narrow[step], 2) for step in narrow}
    assert not {step: times for step, times in grown.items() if times > MOST}, grown
