"""Who ingests: Spark, or the process of the run. What lands becomes the same rows either way.

Varied: formats, deliveries, what is wrong with them, sizes. Held fixed: local files, one schema.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.source import Column
from lakehouse.ingestion.workplace import text_bytes
from tests.orchestration.conftest import BY_EACH_ENGINE, EVENTS, Pipe, event, june


def messy(pipe: Pipe) -> Iterator[list[date]]:
    """Deliveries in several formats, with what goes wrong in each; the days that they are of."""
    rng = random.Random(38)
    for delivery in range(3):
        when = 1_000_000_000 + delivery
        lines = [
            event(rng.randrange(60), rng.randrange(1, 5), hour=rng.randrange(24))
            for _ in range(200)
        ]
        lines += [b"not json", event(1, 1, amount="many"), event(2, 2, id=None), event(3, 29)]
        lines += [event(70 + delivery, 2, **{f"new{delivery}": {"a": [1, 2.5]}}), b""]
        rng.shuffle(lines)
        pipe.land(f"{delivery}.jsonl.gz", lines, modified=when)
        rows = [b"%d,2026-06-0%dT11:00:00,u1,%d" % (n, 1 + n % 4, n) for n in range(50, 90)]
        pipe.land(f"{delivery}.csv", [b"id,ts,user,amount", *rows, b"1,2", b""], modified=when)
        path = pipe.folder / f"{delivery}.parquet"
        ids = [rng.randrange(200) for _ in range(50)]
        times = [f"2026-06-0{1 + n % 4}T09:00:00" for n in ids]
        pq.write_table(pa.table({"id": ids, "ts": times, "amount": [None, 7] * 25}), path)
        os.utime(path, (when, when))
        yield june(1, 4)
    pipe.land("0.jsonl.gz", [event(n, 3) for n in range(40, 75)], modified=1_000_000_009)
    yield june(1, 4)


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.spark)])
def test_either_engine_makes_the_same_of_what_lands(pipe: Pipe, tmp_path: Path) -> None:
    told = []
    by_spark, by_python = (
        Pipe(tmp_path / name, pipe.spark, replace(pipe.source, engine=name, pattern="*"))
        for name in ("spark", "python")
    )
    for one, other in zip(messy(by_spark), messy(by_python), strict=True):
        assert one == other
        done = []
        for each in (by_spark, by_python):
            indexed = each.index()
            taken = each.ingest(one, "increment")
            work = each.work()
            tables = [
                each.lake.load_table(name).scan().to_arrow()
                for name in (each.source.table, each.source.quarantine_table)
            ]
            assert work.engines == set()
            done.append(
                (
                    (indexed.lines, indexed.undated, indexed.problems, indexed.days),
                    (indexed.reasons, indexed.landed),
                    (taken.counts, taken.by_day, taken.reasons, taken.drift),
                    each.ledger(),
                    [sorted(table.to_pylist(), key=str) for table in tables],
                    [table.schema for table in tables],
                )
            )
        assert done[0] == done[1]
        told.append(taken.counts)
    assert all(count.rows and count.quarantined and count.duplicates for count in told)
    files = [
        len(each.lake.load_table(each.source.table).scan().plan().files)
        for each in (by_spark, by_python)
    ]
    assert files[1] <= files[0]


TEXT = 64 << 20


@pytest.mark.parametrize("engine", ["python"])
@pytest.mark.parametrize(
    ("changes", "files", "engine_used"),
    [
        ({}, {"a.json": TEXT}, "python"),
        ({}, {"a.json": TEXT, "b": 1}, "spark"),
        ({}, {"a.json.gz": TEXT // 8}, "python"),
        ({}, {"a.JSON.GZ": TEXT // 8 + 1}, "spark"),
        ({}, {"a.parquet": TEXT // 8 + 1}, "spark"),
        ({"transform": lambda rows: rows}, {"a.json": 1}, "python"),
        ({"engine": "spark"}, {"a.json": 1}, "spark"),
        ({"engine": "python"}, {"a.json": 1 << 40}, "python"),
    ],
)
def test_who_ingests_follows_from_size_and_definition(
    pipe: Pipe, changes: dict[str, Any], files: dict[str, int], engine_used: str
) -> None:
    landed = [LandingFile(name, size, 0) for name, size in files.items()]
    source = replace(pipe.source, **{"engine": "auto", **changes})
    work = pipe.work()
    work.workers(source, text_bytes(landed))
    assert work.engines == {engine_used}


@pytest.mark.parametrize("engine", ["python"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "duckdb"}, "engine='duckdb' is none of auto, spark, python"),
        ({"engine": "python", "transform": lambda rows: rows}, "cannot run the transform"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(
    pipe: Pipe, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        replace(pipe.source, **changes)


@BY_EACH_ENGINE
@pytest.mark.parametrize("name", ["*", "^k$", "^.*$"])
def test_keys_may_have_names_that_are_patterns_elsewhere(pipe: Pipe, name: str) -> None:
    columns = (Column(name, "long"), *EVENTS.columns)
    keyed = pipe.with_source(natural_key=(name,), columns=columns)
    keyed.land("1.jsonl.gz", [event(7, 2, **{name: number % 3}) for number in range(5)])
    keyed.index()
    keyed.ingest(june(2))
    assert keyed.rows(name) == [(0,), (1,), (2,)]
    keyed.assert_conserved(5)
