"""Quarantined lines are taken again as a pipeline takes them that knew the definition at first."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from lakehouse.errors import NoSuchTableError, NotFoundError
from lakehouse.ingestion import ingest
from lakehouse.ingestion.source import Column
from lakehouse.ingestion.source_tables import reject_kinds
from lakehouse.orchestration.automation.landing_state import look
from lakehouse.orchestration.automation.quarantine_retry import (
    QuarantineReasons,
    retry,
    retry_job,
    retry_quarantine,
)
from lakehouse.orchestration.automation.run_requests import DRY_RUN_TAG, TABLES_TAG
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec.metadata.snapshot import Snapshot
from tests.orchestration.conftest import EVENTS, Pipe, event, june

pytestmark = pytest.mark.spark
STRICT = {"drift": "quarantine"}
WITH_COUPON = {"columns": (*EVENTS.columns, Column("coupon", "string"))}


def _state(pipe: Pipe) -> tuple[object, ...]:
    """Everything that a reader can see, by values."""
    ledger = [
        (one.landing_file, one.event_day, one.lines, one.rows, one.quarantined, one.duplicates)
        for one in pipe.ledger()
    ]
    pending = [one for one in pipe.ledger() if one.pending]
    return pipe.rows("id", "amount", "coupon", "landing_file"), pipe.quarantine(), ledger, pending


def _known_at_first(pipe: Pipe, tmp_path: Path) -> tuple[object, ...]:
    """The state of another pipeline that takes the same files by today's definition."""
    other = Pipe(tmp_path / "another", pipe.spark, pipe.source)
    shutil.copytree(pipe.folder, other.folder, dirs_exist_ok=True)
    days = other.index().days
    other.ingest(days)
    return _state(other)


def _odd(pipe: Pipe) -> int:
    """Lands and ingests three days with fields that nobody declared; returns the lines."""
    first = [event(n, 1) for n in range(10)]
    first += [event(n, 1, coupon="c") for n in range(10, 13)] + [event(3, 1), b"{broken"]
    second = [event(n, 2, coupon="d", amount=0.5 if n == 21 else n) for n in (20, 21)]
    third = [event(n, 3) for n in range(30, 34)]
    pipe.land("1.jsonl.gz", first)
    pipe.land("2.jsonl.gz", [*second, *third, event(5, 1)])
    pipe.index()
    pipe.ingest(june(1, 3))
    return len(first) + len(second) + len(third) + 1


def _taken(pipe: Pipe) -> list[date]:
    """Do what the sensor asks for: read what is to be read, write the days that wait."""
    unread, pending = look(pipe.lake, pipe.landing, pipe.source)
    if unread.num_rows:
        pipe.index()
        _, pending = look(pipe.lake, pipe.landing, pipe.source)
    days = [day for day, _ in pending if day is not None]
    if days:
        pipe.ingest(days, "increment")
    return days


def test_a_quarantine_is_told_by_reason_with_what_would_take_its_lines(pipe: Pipe) -> None:
    pipe = pipe.with_source(**STRICT)
    _odd(pipe)
    kinds = reject_kinds(pipe.lake.load_table(pipe.source.quarantine_table))
    told = QuarantineReasons(pipe.source, kinds)
    assert told.title() == "raw.events_quarantine: 6 lines"
    first, second = told.to_dict()["reasons"]
    assert (first["reason"], first["field"], first["lines"]) == ("unexpected column", "coupon", 5)
    assert first["taken_by"] == "Declare 'coupon', or say drift=\"evolve\"."
    assert (second["reason"], second["file"], second["line"]) == (
        "malformed JSON",
        "1.jsonl.gz",
        15,
    )
    assert next(iter(told.facts()))[0] == "5 x unexpected column: coupon"


def test_lines_of_a_field_that_is_declared_now_leave_the_quarantine(
    pipe: Pipe, tmp_path: Path
) -> None:
    pipe = pipe.with_source(**STRICT)
    lines = _odd(pipe)
    pipe.assert_conserved(lines)
    assert Counter(reason for *_, reason in pipe.quarantine())["unexpected column"] == 5
    before = pipe.rows(), pipe.quarantine(), pipe.ledger()
    pipe.source = dataclasses.replace(pipe.source, **WITH_COUPON)

    plan = retry(pipe.lake, pipe.landing, pipe.source, dry_run=True)
    assert (plan.lines, plan.days, plan.left) == (5, (*june(1, 2),), 0)
    assert (pipe.rows(), pipe.quarantine(), pipe.ledger()) == before
    for _ in range(2):  # done twice it is as if done once
        done = retry(pipe.lake, pipe.landing, pipe.source)
        assert (done.lines, done.days, done.undated_lines) == (5, plan.days, 1)
        assert (pipe.rows(), pipe.quarantine()) == before[:2]
        pipe.assert_conserved(lines)
    # the file of the broken line is read again, and all of its days are written anew
    assert _taken(pipe) == june(1, 2)
    pipe.assert_conserved(lines)
    assert _state(pipe) == _known_at_first(pipe, tmp_path)
    assert sorted(reason for *_, reason in pipe.quarantine()) == ["malformed JSON", "type conflict"]
    assert _taken(pipe) == []


@pytest.mark.parametrize("dies", ["before publication", "before the ledger"])
def test_a_run_that_dies_between_loses_and_repeats_nothing(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    pipe = pipe.with_source(**STRICT)
    lines = _odd(pipe)
    pipe.source = dataclasses.replace(pipe.source, **WITH_COUPON)
    retry(pipe.lake, pipe.landing, pipe.source)
    pipe.index()

    def killed(*_: object) -> Sequence[object]:
        raise KeyboardInterrupt

    def holds(_snapshot: Snapshot, _days: Sequence[date]) -> Sequence[object]:
        return ()

    work, days = pipe.work(), june(1, 3)
    with monkeypatch.context() as patch:
        if dies == "before the ledger":
            patch.setattr(ingest, "ledger_to_arrow", killed)
        audit = holds if dies == "before the ledger" else killed
        with pytest.raises(KeyboardInterrupt):
            ingest.ingest_days(work, pipe.source, days, "increment", audit)
    retry(pipe.lake, pipe.landing, pipe.source)
    _taken(pipe)
    pipe.assert_conserved(lines)
    assert _state(pipe) == _known_at_first(pipe, tmp_path)


def test_files_that_could_not_be_read_are_read_by_the_present_format(
    pipe: Pipe, tmp_path: Path
) -> None:
    text = [b"id,ts,user,amount,coupon", b"1,2026-06-01T12:00:00,u,7,x", b"2,,u,7,x"]
    pipe.land("1.jsonl.gz", text)
    pipe.land("2.jsonl.gz", [event(9, 1, coupon="z")])
    pipe.index()
    pipe.ingest(june(1))
    assert len(pipe.rows()) == 1
    broken = len(pipe.quarantine())
    # the other file is what the present format cannot read
    pipe.source = dataclasses.replace(pipe.source, format="csv", pattern="1*", **WITH_COUPON)
    assert look(pipe.lake, pipe.landing, pipe.source)[0].num_rows == 0
    done = retry(pipe.lake, pipe.landing, pipe.source)
    assert (done.undated_files, done.undated_lines) == (("1.jsonl.gz",), broken)
    assert look(pipe.lake, pipe.landing, pipe.source)[0]["landing_file"].to_pylist() == [
        "1.jsonl.gz"
    ]
    pipe.index()
    assert [reason for *_, reason in pipe.quarantine()] == ["event time missing"]
    assert look(pipe.lake, pipe.landing, pipe.source)[0].num_rows == 0


def test_days_whose_files_are_gone_stay_as_they_are(pipe: Pipe) -> None:
    pipe = pipe.with_source(**STRICT)
    lines = _odd(pipe)
    (pipe.folder / "1.jsonl.gz").unlink()
    before = pipe.ledger()
    pipe.source = dataclasses.replace(pipe.source, **WITH_COUPON)
    done = retry(pipe.lake, pipe.landing, pipe.source)
    # the first day needs the file that is gone; the second does not
    assert (done.lines, done.days) == (2, (*june(2),))
    assert (done.left, done.gone, done.undated_files) == (4, ("1.jsonl.gz",), ())
    assert "4" in str(dict(done.facts())["lines that stay"])
    assert [one for one in pipe.ledger() if one.event_day == june(1)[0]] == [
        one for one in before if one.event_day == june(1)[0]
    ]
    assert _taken(pipe) == june(2)
    pipe.assert_conserved(lines)


def test_a_file_that_goes_after_it_was_asked_for_keeps_its_lines_in_quarantine(pipe: Pipe) -> None:
    pipe.land("1.jsonl.gz", [event(1, 1), b"{broken"])
    pipe.land("2.jsonl.gz", [event(2, 2)])
    pipe.index()
    pipe.ingest(june(1, 2))
    retry(pipe.lake, pipe.landing, pipe.source)
    (pipe.folder / "1.jsonl.gz").unlink()
    pipe.ingest(june(1, 2), "increment")
    pipe.assert_conserved(3)
    assert not any(one.pending for one in pipe.ledger())


def test_the_job_marks_the_tables_that_its_tags_choose(pipe: Pipe) -> None:
    pipe = pipe.with_source(**STRICT)
    _odd(pipe)
    job = retry_job(Pipeline((pipe.source,), (), pipe.landing))
    resources = {
        "lakehouse": LakehouseResource(catalog=pipe.warehouse, landing=pipe.landing),
    }

    def pending(tags: dict[str, str]) -> int:
        job.execute_in_process(resources=resources, tags=tags)
        return sum(one.pending for one in pipe.ledger())

    assert pending({DRY_RUN_TAG: "true"}) == 0
    with pytest.raises(dg.Failure, match=r"raw\.nosuch"):
        pending({TABLES_TAG: "raw.nosuch"})
    assert pending({TABLES_TAG: "raw.events"}) == 3


def test_what_cannot_be_taken_again_is_told(pipe: Pipe) -> None:
    with pytest.raises(NoSuchTableError, match="nothing of the source 'events' was indexed yet"):
        retry(pipe.lake, pipe.landing, pipe.source)
    with pytest.raises(NotFoundError, match=r"no source writes raw\.nosuch; .*raw\.flights"):
        retry_quarantine(pipe.lake, "raw.nosuch")
