"""States: what they depend on besides evidence."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from lakehouse.semantics.binding import TableNames, bind
from lakehouse.semantics.facts import Change, ColumnFacts, TableFacts
from lakehouse.semantics.judgement import Extent, Outcome, judge
from lakehouse.semantics.statement_rows import verification_rows, verifications_of
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.states import Mark, State, Verification, standing, trust_left

TABLE = TableNames("raw.events", "u", {"at": 1, "size": 2, "name": 3})
NOW = int(dt.datetime(2025, 7, 1, 6, tzinfo=dt.UTC).timestamp() * 1000)
DAY = 86_400_000


def facts(**columns):
    given = {
        1: ColumnFacts(1000, 0, 0, dt.date(2025, 1, 1), dt.date(2025, 6, 30), True, 4000),
        2: ColumnFacts(1000, 0, 0, 0, 100, True, 8000),
        3: ColumnFacts(1000, 0, 0, "a", "z", False, 9000),
    }
    for name, column in columns.items():
        given[TABLE.fields[name]] = column
    return TableFacts(
        name="raw.events",
        table_uuid="u",
        schema_id=0,
        snapshot_id=5,
        timestamp_ms=NOW,
        rows=1000,
        columns=given,
        names={1: "at", 2: "size", 3: "name"},
        properties={},
    )


def statement(**written):
    draft = draft_of({"table": "raw.events", "kind": "warning", **written}, "test")
    return bind(draft, {"raw.events": TABLE}, 0)


def same(**columns):
    return {"u": Change(after=facts(**columns), same_rows=True)}


def changed(*, append_only=True, since=7, **columns):
    change = Change(
        after=facts(**columns),
        same_rows=False,
        since=since,
        added=frozenset({"f"}),
        removed=frozenset(),
        append_only=append_only,
    )
    return {"u": change}


def verified(of, *, holds=True, by="Ann"):
    mark = Mark.of(facts(), of.fields_of("u"))
    return Verification(
        statement_id=of.statement_id,
        digest=of.digest(),
        at_ms=NOW - DAY,
        by=by,
        holds=holds,
        reason="seen",
        marks={"u": mark},
    )


def test_a_replaced_statement_is_deprecated_and_a_dated_one_expires():
    old = statement(superseded_by="other")
    assert standing(old, None, same(), NOW).state is State.DEPRECATED
    dated = statement(expires="2025-07-01")
    assert standing(dated, verified(dated), same(), NOW).state is State.EXPIRED
    assert standing(dated, verified(dated), same(), NOW - DAY).state is State.VERIFIED


def test_another_wording_was_not_verified():
    one = statement(column="size", text="In bytes.")
    last = verified(one)
    assert standing(one, last, same(), NOW).state is State.VERIFIED
    edited = statement(column="size", text="In bits.")
    found = standing(edited, replace(last, statement_id=edited.statement_id), same(), NOW)
    assert found.state is State.UNVERIFIED
    assert "nobody has accepted it" in found.reason


def test_a_contradiction_stays_until_its_evidence_runs_again():
    one = statement(evidence={"check": "query", "sql": "select true from raw.events"})
    last = verified(one, holds=False, by="evidence")
    assert standing(one, last, same(), NOW).state is State.CONTRADICTED
    later = standing(one, last, changed(), NOW)
    assert later.state is State.CONTRADICTED
    assert later.verdict.extent is Extent.TABLE


def test_evidence_that_ran_before_rows_changed_says_since_when_it_is_unverified():
    one = statement(evidence={"check": "pattern", "column": "name", "regex": "[a-z]+"})
    found = standing(one, verified(one), changed(since=42), NOW)
    assert (found.state, found.since) == (State.UNVERIFIED, 42)
    assert found.verdict.extent is Extent.CHANGED_FILES


def test_time_alone_can_break_a_promise_of_freshness():
    one = statement(
        kind="freshness", column="at", evidence={"check": "newest", "column": "at", "within": "1d"}
    )
    assert standing(one, verified(one), same(), NOW).state is State.VERIFIED
    late = standing(one, verified(one), same(), NOW + 2 * DAY)
    assert late.state is State.CONTRADICTED
    assert "more than 1d ago" in late.reason


@pytest.mark.parametrize(
    ("check", "column", "outcome"),
    [
        (
            {"check": "bounds", "min": 0, "max": 100},
            ColumnFacts(5, 0, 0, 0, 100, True),
            Outcome.HOLDS,
        ),
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 0, 0, 0, 100, True), Outcome.FAILS),
        # a delete may have taken the row that the bound comes from, and text bounds are cut
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 0, 0, 0, 100, False), Outcome.UNKNOWN),
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 0, None, 0, 9, True), Outcome.UNKNOWN),
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 0, 1, 0.0, 9.0, True), Outcome.UNKNOWN),
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 5, 0, None, None, True), Outcome.HOLDS),
        ({"check": "bounds", "max": 99}, ColumnFacts(5, 0, 0, None, None, True), Outcome.UNKNOWN),
        (
            {"check": "bounds", "max": 99, "where": "size > 5"},
            ColumnFacts(5, 0, 0, 0, 100, True),
            Outcome.UNKNOWN,
        ),
        (
            {"check": "values", "allowed": [0, 50, 99]},
            ColumnFacts(5, 0, 0, 0, 100, True),
            Outcome.FAILS,
        ),
        (
            {"check": "values", "allowed": [0, 100]},
            ColumnFacts(5, 0, 0, 0, 100, True),
            Outcome.UNKNOWN,
        ),
        ({"check": "null_share"}, ColumnFacts(1000, 0, 0, 0, 1, True), Outcome.HOLDS),
        ({"check": "null_share"}, ColumnFacts(1000, 1, 0, 0, 1, True), Outcome.FAILS),
        ({"check": "null_share", "max": 0.1}, ColumnFacts(1000, 1, 0, 0, 1, True), Outcome.HOLDS),
        ({"check": "null_share"}, ColumnFacts(None, None), Outcome.UNKNOWN),
    ],
)
def test_what_metadata_says_of_a_column(check, column, outcome):
    one = statement(evidence={**check, "column": "size"})
    assert judge(one, changed(size=column), known=False, now_ms=NOW).outcome is outcome


def test_a_dropped_column_or_table_contradicts_whatever_else_is_known():
    one = statement(column="size", evidence={"check": "bounds", "column": "size"})
    after = replace(facts(), names={1: "at", 3: "name"})
    gone = {"u": Change(after=after, same_rows=True)}
    assert standing(one, verified(one), gone, NOW).reason.startswith("column size of raw.events")
    assert standing(one, verified(one), {}, NOW).state is State.CONTRADICTED


def test_a_name_that_is_another_ones_now_is_not_said_to_be_gone():
    """A statement is of a field: one that has its name later is another one, and is named so."""
    bounds = {"check": "bounds", "column": "size", "max": 100}
    about = statement(column="size", evidence=bounds)
    after = replace(facts(), names={1: "at", 3: "name", 9: "size"})
    again = {"u": Change(after=after, same_rows=False)}
    found = standing(about, verified(about), again, NOW)
    assert found.state is State.CONTRADICTED
    assert found.reason == (
        "column size of raw.events of which it was said (field id 2) was dropped; the one of that "
        "name (id 9) was added later"
    )
    # another column than the one that the claim is about: the claim may hold, its check cannot run
    beside = statement(column="name", text="Names.", evidence=bounds)
    for changes, why in (
        (again, "(id 9) was added later"),
        ({"u": Change(after=replace(after, names={1: "at", 3: "name"}), same_rows=True)}, "exist"),
    ):
        found = standing(beside, verified(beside), changes, NOW)
        assert found.state is State.UNVERIFIED
        assert found.reason.startswith("its check cannot run: column size of raw.events")
        assert why in found.reason
    # where the claim names it, it is about it
    key = statement(kind="grain", key=["at", "size"])
    assert standing(key, verified(key), again, NOW).state is State.CONTRADICTED
    # so with tables
    found = standing(about, None, {}, NOW, {"raw.events"})
    assert found.reason == (
        "table raw.events of which it was said was dropped; the one of that name is another"
    )
    assert standing(about, None, {}, NOW).reason == (
        "column size of raw.events does not exist any more"
    )


def test_what_nothing_can_check_loses_trust_by_what_changes_around_it():
    one = statement(column="size", text="In bytes.")
    last = verified(one)
    appended = changed(size=ColumnFacts(1100, 0, 0, 0, 100, True, 8800))
    assert trust_left(one, last, appended) == (1.0, [])
    assert standing(one, last, appended, NOW).state is State.VERIFIED
    in_bits = changed(append_only=False, size=ColumnFacts(1000, 0, 0, 0, 800, True, 8000))
    found = standing(one, last, in_bits, NOW)
    assert found.state is State.UNVERIFIED
    assert found.trust < 0.7
    assert "was rewritten" in found.reason
    assert "[0, 800]" in found.reason


@pytest.mark.parametrize("repacked", [False, True])
def test_bytes_that_compaction_saved_are_no_other_values(repacked):
    one = statement(column="size", text="In bytes.")
    narrower = changed(size=ColumnFacts(1100, 0, 0, 0, 100, True, 2200))
    narrower = {"u": replace(narrower["u"], repacked=repacked)}
    trust, losses = trust_left(one, verified(one), narrower)
    assert (trust, len(losses)) == ((1.0, 0) if repacked else (0.6, 1))


def test_an_owner_is_who_the_table_says():
    one = statement(kind="owner", owner="Ann")
    told = {"u": Change(after=replace(facts(), properties={"owner": "Bob"}), same_rows=True)}
    found = standing(one, verified(one), told, NOW)
    assert found.state is State.CONTRADICTED
    assert "Bob" in found.reason


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        ("Ann", "Ann", State.VERIFIED),
        ("Ann", "Bob", State.UNVERIFIED),
        ("Ann", None, State.UNVERIFIED),
        (None, "Bob", State.VERIFIED),
    ],
)
@pytest.mark.parametrize("same_rows", [True, False])
def test_trust_goes_with_the_owner(before, now, state, same_rows):
    def owned(owner):
        return replace(facts(), properties={} if owner is None else {"owner": owner})

    one = statement(column="size", text="In bytes.")
    last = replace(verified(one), marks={"u": Mark.of(owned(before), one.fields_of("u"))})
    kept = verifications_of(verification_rows([last]))[one.statement_id]
    assert kept.marks == last.marks
    change = Change(after=owned(now), same_rows=same_rows, append_only=True)
    found = standing(one, kept, {"u": change}, NOW)
    assert found.state is state
    assert ("owner of raw.events" in found.reason) == (state is State.UNVERIFIED)


def test_marks_of_before_owners_were_kept_are_read():
    one = statement(column="size", text="In bytes.")
    rows = verification_rows([verified(one)])
    old = json.loads(rows["marks"][0].as_py())
    assert old["u"].pop("owner") is None
    rows = rows.set_column(rows.column_names.index("marks"), "marks", [[json.dumps(old)]])
    assert verifications_of(rows)[one.statement_id].marks == verified(one).marks
