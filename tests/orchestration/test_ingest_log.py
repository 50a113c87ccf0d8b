"""What an engineer on call reads in the log of an ingestion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

from lakehouse.ingestion.ingest import index_landing, ingest_days
from lakehouse.ingestion.ingest_log import days_written
from lakehouse.ingestion.landing_ledger import LineCount
from lakehouse.ingestion.workers.workers import SparkWorkers
from lakehouse.ingestion.workplace import Workplace
from tests.orchestration.conftest import BY_EACH_ENGINE, Pipe, event, june


@BY_EACH_ENGINE
def test_an_ingestion_says_what_it_takes_and_what_became_of_each_day(pipe: Pipe) -> None:
    pipe.land("a.jsonl.gz", [event(n, 1) for n in range(5)] + [b"not json", event(1, 1)])
    pipe.land("b.jsonl.gz", [event(10 + n, 2) for n in range(3)] + [event(99, 2, id=None)])
    said: list[str] = []
    seen: list[tuple[str, int, int]] = []

    def work() -> Workplace:
        return replace(pipe.work(), say=said.append, progress=lambda *one: seen.append(one))

    index_landing(work(), pipe.source)
    ingest_days(work(), pipe.source, june(1, 2), "replace", lambda snapshot, days: ())
    landed, indexed, plan, staged, published, written = said
    assert (staged, published) == ("staging 4 data files", "published")
    assert landed.startswith("2 landing files, 2 of them new or changed")
    assert indexed.splitlines() == [
        "2 files indexed: 11 lines, 1 without a usable event time",
        "quarantined 1 x malformed JSON",
    ]
    assert plan == "replace 2 days, 2026-06-01 to 2026-06-02: 10 lines of 2 files"
    cells = [[c.strip() for c in line.split("│")[1:-1]] for line in written.splitlines()]
    days = [row for row in cells if row and row[0].startswith("2026")]
    rows = sum(int(row[2]) for row in days)
    assert rows == len(pipe.rows()), "what the log says is what the table has"
    assert [(row[0], sum(map(int, row[2:]))) for row in days] == [
        (row[0], int(row[1])) for row in days
    ], "every line is a row, quarantined or a duplicate"
    # of each stage its end is told, however short it was
    assert [stage for stage, done, total in seen if done == total] == [
        "tasks of indexing",
        "tasks of writing rows",
        "tasks of comparing rows",
        "tasks of writing files without duplicates",
    ]
    index_landing(work(), pipe.source)
    ingest_days(work(), pipe.source, june(1, 2), "increment", lambda snapshot, days: ())
    assert said[6:] == [
        "2 landing files, none of them new or changed",
        "no day to write: nothing is pending",
    ]


@BY_EACH_ENGINE
def test_reasons_are_counted_as_the_quarantine_has_them(pipe: Pipe) -> None:
    pipe.land("a.jsonl.gz", [event(n, 1) for n in range(3)] + [event(9, 1, amount="many")] * 2)
    said: list[str] = []
    index_landing(pipe.work(), pipe.source)
    work = replace(pipe.work(), say=said.append)
    ingest_days(work, pipe.source, june(1), "replace", lambda snapshot, days: ())
    reasons = {reason for _, _, reason in pipe.quarantine()}
    found = [line for line in said[-1].splitlines() if line.startswith("quarantined")]
    assert len(reasons) == 1
    assert found == [f"quarantined 2 x {reason}: amount" for reason in reasons]


def test_many_days_are_cut_and_said_to_be() -> None:
    counts = {date(2026, m, d): LineCount(1, 1) for m in (1, 2, 3) for d in range(1, 21)}
    text = days_written(counts, LineCount(60, 60), {})
    assert sum(line.startswith("│ 2026") for line in text.splitlines()) == 40
    assert "and 20 earlier days" in text
    assert "2026-03-20" in text


def test_progress_counts_the_tasks_of_its_own_job_and_leaves_the_session_as_it_was(
    pipe: Pipe,
) -> None:
    context = pipe.spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "mine")
    seen: list[tuple[int, int]] = []
    try:
        work: Callable[[int, str], int] = lambda item, task: item * item  # noqa: E731
        found = SparkWorkers(pipe.spark).results(range(7), work, lambda *one: seen.append(one))
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert found == [item * item for item in range(7)]
    assert seen[-1] == (7, 7)
    assert all(0 <= done <= total == 7 for done, total in seen)
