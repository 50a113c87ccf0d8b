"""Statements kept in a lakehouse and checked against it."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.curation import evidence_run
from lakehouse.curation.checkup import accept, check_statements, statements_about
from lakehouse.curation.gathering import table_names
from lakehouse.curation.statement_store import DIGEST, STATEMENTS, StatementStore
from lakehouse.curation.survey import survey
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.semantics.states import State

DOCUMENT = """
table: raw.events
statements:
- id: codes
  kind: codes
  column: code
  values: {A: one, B: two}
  evidence: {check: values, column: code, allowed: [A, B]}
- {id: form, kind: warning, evidence: {check: pattern, column: code, regex: "[A-Z]"}}
- {id: said, kind: description, text: Events.}
- id: nested
  kind: unit
  column: box.size
  unit: cm
  evidence: {check: bounds, column: box.size, min: 0, max: 50, where: "code = 'A'"}
- id: asked
  kind: warning
  evidence: {check: query, sql: "select count(*) > 0, count(*) as n from raw.events"}
"""
SAID = "{table: raw.events, statements: [{id: said, kind: description, text: %s}]}"
BROKEN = """
table: raw.events
statements:
- {id: bad, kind: warning, evidence: {check: query, sql: select no_such(1) from raw.events}}
"""
SCHEMA = pa.schema([("code", pa.string()), ("box", pa.struct([("size", pa.int32())]))])


def rows(codes, size=5):
    return pa.Table.from_pylist([{"code": code, "box": {"size": size}} for code in codes], SCHEMA)


@pytest.fixture
def lake(tmp_path):
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    lake.create_table("raw.events", SCHEMA).append(rows("ABA"))
    put(lake, DOCUMENT)
    return lake


def put(lake, document, **options):
    names = {t.name: table_names(t) for t in map(lake.load_table, lake.list_tables())}
    now = lake.environment.now_ms()
    statements = [bind(statement, names, now) for statement in parse_statements(document)]
    snapshot = StatementStore(lake).put(statements, **options)
    accept(lake, statements, "Ann")
    return snapshot


def states(lake, **options):
    return {
        statement.statement.statement_id: statement
        for statement in check_statements(lake, **options)
    }


def test_states_move_with_the_data(lake):
    assert {state.standing.state for state in states(lake).values()} == {State.VERIFIED}
    lake.load_table("raw.events").append(rows("C"))
    seen = survey(lake)
    before = {statement.statement_id: seen.standing(statement) for statement in seen.statements}
    assert before["codes"].state is State.UNVERIFIED  # bounds of text may be cut
    assert before["form"].state is State.UNVERIFIED
    assert before["form"].since == lake.load_table("raw.events").metadata.current_snapshot_id
    after = states(lake)
    assert after["codes"].standing.state is State.CONTRADICTED
    assert after["form"].standing.state is State.VERIFIED
    assert after["form"].by == "evidence"
    lake.load_table("raw.events").delete("code = 'C'")
    assert states(lake)["codes"].standing.state is State.VERIFIED


def test_evidence_reads_added_and_removed_files_alone(lake, monkeypatch):
    table = lake.load_table("raw.events")
    table.append(rows("B" * 5))
    states(lake)
    read = []
    real = evidence_run.read_tasks

    def noted(tasks, *rest):
        tasks = list(tasks)
        read.append([task.data_file.record_count for task in tasks])
        return real(tasks, *rest)

    monkeypatch.setattr(evidence_run, "read_tasks", noted)
    table.append(rows("ab"))
    found = states(lake)["form"]
    assert found.standing.state is State.CONTRADICTED
    assert found.standing.reason == "8 of 10 values match"
    assert read.count([2]) >= 1
    assert all(counts == [2] for counts in read), "an old file was read again"


def test_what_a_query_saw_is_kept_with_it(lake):
    assert states(lake)["asked"].standing.reason == "the query returns true (n 3)"


def test_evidence_that_does_not_run_fails_with_its_error(lake):
    put(lake, BROKEN)
    found = states(lake)["bad"].standing
    assert found.state is State.CONTRADICTED
    assert "does not run" in found.reason


def test_a_column_renamed_is_followed_and_one_dropped_contradicts(lake):
    states(lake)
    with lake.load_table("raw.events").update_schema() as schema:
        schema.rename_column("code", "kind")
    found = states(lake)
    assert {one.standing.state for one in found.values()} == {State.VERIFIED}
    assert found["nested"].draft.evidence.arguments["where"] == "kind = 'A'"
    with lake.load_table("raw.events").update_schema() as schema:
        schema.drop_column("kind")
    found = states(lake)
    assert found["codes"].standing.reason == "column code of raw.events does not exist any more"
    assert found["said"].standing.state is State.VERIFIED


def test_what_was_said_at_a_time_is_still_there(lake):
    store = StatementStore(lake)
    first = lake.load_table(STATEMENTS).current_snapshot().timestamp_ms
    put(lake, SAID % "Clicks.")
    assert [
        statement.draft.text for statement in store.statements() if statement.statement_id == "said"
    ] == ["Clicks."]
    then = {statement.statement_id: statement for statement in store.statements(first)}
    assert then["said"].draft.text == "Events."
    assert store.statements(first - 1_000_000) == []


def test_statements_are_an_open_table_and_their_digest_is_on_theirs(lake):
    table = lake.load_table(STATEMENTS)
    files = [file.file_path.removeprefix("file://") for file in table.scan().plan().files]
    kinds = duckdb.sql(f"select kind from read_parquet({files!r}) order by statement_id").fetchall()
    assert [kind for (kind,) in kinds] == ["warning", "codes", "warning", "unit", "description"]
    digest = lake.load_table("raw.events").properties[DIGEST]
    assert put(lake, DOCUMENT) is None
    assert lake.load_table("raw.events").properties[DIGEST] == digest
    StatementStore(lake).remove(["said"])
    assert lake.load_table("raw.events").properties[DIGEST] != digest


def test_replace_takes_back_what_a_document_says_no_more(lake):
    put(lake, SAID % "Events.", replace=True)
    assert [statement.statement_id for statement in StatementStore(lake).statements()] == ["said"]


def test_acceptance_is_of_a_wording(lake):
    put(lake, DOCUMENT)
    names = {t.name: table_names(t) for t in map(lake.load_table, lake.list_tables())}
    edited = parse_statements(DOCUMENT.replace("text: Events.", "text: Clicks."))
    StatementStore(lake).put([bind(one, names, 0) for one in edited])
    assert states(lake)["said"].standing.state is State.UNVERIFIED


def test_references_to_and_from_empty_tables(lake):
    lake.create_table("raw.codes", pa.schema([("code", pa.string())]))
    put(
        lake,
        """
table: raw.events
statements:
- id: out
  kind: warning
  evidence: {check: references, column: code, to: raw.codes.code, except: [Z]}
---
table: raw.codes
statements:
- id: in
  kind: warning
  evidence: {check: references, column: code, to: raw.events.code, except: [Z]}
""",
    )
    found = states(lake)
    assert found["out"].standing.reason == "3 of 3 values are not in raw.codes.code"
    assert found["in"].standing.state is State.VERIFIED


JOINED = """
table: raw.events
statements:
- id: joined
  kind: warning
  evidence: {check: references, column: code, to: raw.codes.code}
"""


def test_only_tables_that_statements_mention_are_looked_at(lake):
    """An unrelated table that cannot even be opened is nobody's business."""
    lake.create_table("raw.codes", pa.schema([("code", pa.string())])).append(
        pa.table({"code": ["A", "B"]})
    )
    put(lake, JOINED)
    broken = lake.create_table("raw.broken", SCHEMA)
    broken.storage.write(broken.metadata_location, b"{}")
    checked = check_statements(lake, ["raw.events"])
    assert "joined" in {one.draft.statement_id for one in checked}
    assert {one.standing.state for one in checked} == {State.VERIFIED}
    about = statements_about(lake, lake.load_table("raw.events"))
    assert [one.standing.state for one in about] == [State.VERIFIED] * len(checked)
    with pytest.raises(lh.LakehouseError):
        check_statements(lake)


@pytest.mark.parametrize("which", ["raw.events", "raw.codes"])
def test_a_table_of_another_name_keeps_what_is_said(tmp_path, which):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))
    lake.create_table("raw.events", SCHEMA).append(rows("AB"))
    lake.create_table("raw.codes", pa.schema([("code", pa.string())])).append(
        pa.table({"code": ["A", "B"]})
    )
    put(lake, JOINED)
    check_statements(lake)
    lake.rename_table(which, "raw.renamed")
    name = "raw.renamed" if which == "raw.events" else "raw.events"
    (one,) = statements_about(lake, lake.load_table(name))
    assert (one.draft.table, one.standing.state) == (name, State.VERIFIED)
    (one,) = check_statements(lake, [name])
    assert (one.draft.table, one.standing.state) == (name, State.VERIFIED)


SHARED = """
table: raw.events
statements:
- id: complete
  kind: codes
  column: code
  complete: true
  values: {A: one, B: [two, test]}
  evidence: &listed {check: values, column: code, allowed: [A, B], all_used: true}
- id: no-tests
  kind: filter
  name: no tests
  predicate: code <> 'B'
  evidence: *listed
- id: sizes
  kind: unit
  column: box.size
  unit: cm
  evidence: &both
    check: query
    sql: >-
      select max(box.size) < 9 and min(code) = 'A', max(box.size) < 9 as "box.size",
      min(code) = 'A' as code from raw.events
- {id: firsts, kind: codes, column: code, values: {A: first}, evidence: *both}
- {id: said, kind: warning, text: Nothing else is told., evidence: *both}
"""


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize(
    ("now", "contradicted"),
    [
        (rows("ABC"), {"complete"}),
        (rows("AAA"), {"complete", "no-tests"}),
        (rows("AC"), {"complete", "no-tests"}),
        (rows("AB", size=10), {"sizes", "said"}),
        (rows("BB"), {"complete", "firsts", "said"}),
        (rows("BC", size=10), {"complete", "sizes", "firsts", "said"}),
    ],
)
def test_a_check_that_backs_several_statements_contradicts_what_it_is_about(
    lake, now, contradicted, analyzed
):
    put(lake, SHARED)
    ids = {statement.statement_id for statement in parse_statements(SHARED)}
    assert {state.standing.state for state in states(lake).values()} == {State.VERIFIED}
    table = lake.load_table("raw.events")
    table.overwrite(now)
    if analyzed:
        table.compute_statistics(["code"])
    found = {name: one.standing for name, one in states(lake).items() if name in ids}
    # a new value, or one that occurs no more, is one of a claim; a query names its columns; of
    # what names no column the check is all
    assert {k for k, one in found.items() if one.state is State.CONTRADICTED} == contradicted
    shared = [{"complete", "no-tests"}, {"sizes", "firsts", "said"}]
    doubted = set().union(*(one for one in shared if one & contradicted)) - contradicted
    assert {k for k, one in found.items() if one.state is State.UNVERIFIED} == doubted
    assert all("fails by what another statement claims" in found[one].reason for one in doubted)
    table.overwrite(rows("AB"))
    assert {state.standing.state for state in states(lake).values()} == {State.VERIFIED}


def test_a_check_that_is_about_none_of_its_statements_contradicts_all(lake):
    put(
        lake,
        """
table: raw.events
statements:
- {id: one, kind: warning, evidence: &few {check: query, sql: select count(*) < 4 from raw.events}}
- {id: two, kind: description, text: Few., evidence: *few}
""",
    )
    lake.load_table("raw.events").append(rows("AB"))
    found = states(lake)
    assert {found[one].standing.state for one in ("one", "two")} == {State.CONTRADICTED}


def test_who_comes_and_goes_beside_a_statement_is_seen_by_a_later_look(lake):
    put(lake, SHARED)
    lake.load_table("raw.events").append(rows("C"))
    check_statements(lake)
    seen = survey(lake)
    assert seen.standings()["no-tests"].state is State.UNVERIFIED
    StatementStore(lake).remove(["complete"])
    later = survey(lake, earlier=seen)
    assert later.standings()["no-tests"].state is State.CONTRADICTED, "nothing else explains it"
    assert later.standings() == survey(lake).standings()
