"""The evaluation of the catalog for agents: its reader, its file format, and a small run."""

from __future__ import annotations

import datetime as dt
import json

import pytest

import lakehouse as lh
from benchmarks.agent_catalog import grading, report
from benchmarks.agent_catalog.__main__ import DEVELOPMENT, owners_statements
from benchmarks.agent_catalog.conditions import Shown
from benchmarks.agent_catalog.domain.nordlicht_tables import SCHEMAS
from benchmarks.agent_catalog.evaluation import evaluate, tables_chosen
from benchmarks.agent_catalog.intervals import mcnemar, wilson
from benchmarks.agent_catalog.questions import load_questions
from benchmarks.agent_catalog.reader.mechanical_reader import read_question
from benchmarks.agent_catalog.reader.question_grammar import Span, taken_apart
from benchmarks.agent_catalog.reader.reading import Reading
from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.sql_findings import dotted, parsed_select, table_nodes
from lakehouse.errors import InvalidInputError

TODAY = dt.date(2025, 7, 1)
TEXT = """
# shop.ord snapshot=1
cols: ord_id long, st int, amt decimal(14, 2), dt date
is: “order” “Orders.” ✓
grain: key=ord_id entity=“order” ✓
unit amt: “EUR” x0.01 gross ✓
codes st complete: 1=“open”; 9=“cancelled” ✓
filter “not deleted” always: [del_ts is null] ✓
fresh: column=dt through=2025-06-30 ✓
"""


def questions(path=DEVELOPMENT):
    return load_questions(path, set(SCHEMAS), owners_statements())


@pytest.mark.slow
def test_a_small_run_grades_every_condition(tmp_path):
    chosen = [question for question in questions() if question.key in ("D03", "D10", "D16")]
    result = evaluate(chosen, [1], ["A", "C", "D states"], scale=0.02)
    assert list(result["conditions"]) == ["A", "C", "D states"]
    bare, enriched = (result["conditions"][name] for name in ("A", "C"))
    assert bare["fact_recall"]["4000"] == 0.0
    assert enriched["fact_recall"]["4000"] > 0.5
    assert enriched["size"]["500"]["tokens"] <= 500
    assert result["conditions"]["D states"]["harmful"]["4000"]["false_unmarked"] == 0
    for part in result["conditions"].values():
        assert sum(part["reader"]["outcomes"].values()) == len(chosen)
    listed = {one["id"] for one in result["failures"]["C"]}
    assert len(listed) == len(chosen) - enriched["reader"]["right"]
    json.dumps(result, default=str)


def test_the_reader_knows_the_text_alone():
    asked = "How much were cancelled orders worth in May 2025?"
    found = read_question(asked, TEXT, TODAY)
    assert found.tables == ("shop.ord",)
    assert "* 0.01" in found.sql
    assert "in ('9')" in found.sql
    assert "date '2025-05-31'" in found.sql
    assert "ord.del_ts IS NULL" in found.sql
    assert read_question(asked, "", TODAY).refusal


def test_a_crash_of_the_reader_is_a_failure_that_is_listed(monkeypatch):
    def crash(*_):
        raise KeyError("no such thing")

    monkeypatch.setattr(grading, "read_question", crash)
    asked = questions()[0]
    shown = Shown(CatalogMap("empty", {}), {})
    _, reading = grading.read(shown, asked, 500, TODAY)
    assert "KeyError" in reading.refusal
    assert grading.grade(asked, asked.before, 1, None, reading).outcome == "error"


def test_the_reader_leaves_contradicted_lines_alone():
    stale = TEXT.replace("x0.01 gross ✓", "x0.01 gross ✗ CONTRADICTED: “no”")
    found = read_question("What is the total amount of orders in May 2025?", stale, TODAY)
    assert found.sql is None
    assert "contradicted" in found.refusal


def test_the_reader_refuses_what_is_not_complete():
    late = TEXT.replace("2025-06-30", "2025-06-12")
    found = read_question("How many orders came in on 20 June 2025?", late, TODAY)
    assert "complete through 2025-06-12" in found.refusal


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("in the second quarter of 2024", (2024, 4, 1), (2024, 6, 30)),
        ("from 3 to 9 March 2025", (2025, 3, 3), (2025, 3, 9)),
        ("in December 2024", (2024, 12, 1), (2024, 12, 31)),
        ("since February 2025", (2025, 2, 1), (2025, 6, 30)),
        ("from March to May 2025", (2025, 3, 1), (2025, 5, 31)),
        ("in 2025", (2025, 1, 1), (2025, 6, 30)),
    ],
)
def test_spans_of_time(text, first, last):
    found = taken_apart(f"How many orders came in {text}?", TODAY)
    assert found.span == Span(dt.date(*first), dt.date(*last))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"behaviour": "guess"}, "behaviour is 'guess', not one of answer"),
        ({"tables": ["sales.nothing"]}, "there is no table sales.nothing"),
        ({"requires": ["S999"]}, "there is no statement S999"),
        ({"tolerance": "small"}, "tolerance must be in"),
        ({"gold": "drop table x"}, "gold must be a SELECT or null"),
        ({"gold": None}, "null exactly where it is refused"),
        ({"question": ""}, "question must be text"),
    ],
)
def test_a_question_that_is_none_is_named(tmp_path, change, message):
    one = json.loads(DEVELOPMENT.read_text())[4]
    path = tmp_path / "asked.json"
    path.write_text(json.dumps([{**one, **change}]))
    with pytest.raises(lh.InvalidInputError, match=r"question 1 \(D05\)") as refused:
        questions(path)
    assert message in str(refused.value)


def test_files_that_hold_no_questions(tmp_path):
    path = tmp_path / "asked.json"
    for text, message in (("[", "is no JSON"), ("{}", "must hold a list"), ("[1]", "an object")):
        path.write_text(text)
        with pytest.raises(lh.InvalidInputError, match=message):
            questions(path)
    path.write_text(json.dumps([json.loads(DEVELOPMENT.read_text())[0]] * 2))
    with pytest.raises(lh.InvalidInputError, match="D01 is given twice"):
        questions(path)


def test_intervals_against_published_figures():
    # Newcombe 1998, table I: 15 of 148 is 0.0624 to 0.1605
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    first = {str(one): one < 9 for one in range(10)}
    second = {str(one): one < 3 for one in range(10)}
    assert mcnemar(first, second) == {"only_first": 6, "only_second": 0, "p": 0.03125}


def test_the_page_shows_the_kept_result():
    page = report.PAGE.read_text("utf-8")
    assert report.page_with(page, json.loads(report.RESULT.read_text("utf-8"))) == page


class Figures:
    """Rows whose every figure is 7."""

    def figure(self, sql):
        return 7


def wanted_of(key, *, after=False):
    (asked,) = [question for question in questions() if question.key == key]
    return asked, asked.after if after else asked.before


def graded(key, reading, *, after=False, expected=7):
    asked, wanted = wanted_of(key, after=after)
    return grading.grade(asked, wanted, expected, Figures(), reading)


@pytest.mark.parametrize(
    ("caveats", "outcome", "behaved"),
    [
        ((), "no caveat", False),
        (("figures are in euros",), "other caveat", False),
        (("June 2025",), "other caveat", False),
        (("the month is not closed yet",), "right", True),
        (("figures are in euros", "usage is still missing"), "right", True),
    ],
)
def test_a_warning_has_to_say_what_is_wanted(caveats, outcome, behaved):
    reading = Reading("select 7", ("finance.rev_rec",), warnings=caveats)
    found = graded("D14", reading, after=True)
    assert (found.outcome, found.correct, found.behaved) == (outcome, outcome == "right", behaved)
    assert graded("D14", reading, after=True, expected=8).outcome == "wrong"
    assert graded("D14", reading).outcome == "not refused"


@pytest.mark.parametrize(
    ("tables", "outcome"),
    [
        (("product.evt", "product.ws"), "right"),
        (("product.use_daily", "product.ws"), "other table"),
        (("product.use_daily", "product.evt", "product.ws"), "right"),
        ((), "other table"),
    ],
)
def test_another_table_has_to_be_taken_where_it_is_wanted(tables, outcome):
    found = graded("D13", Reading("select 7", tables))
    assert (found.outcome, found.behaved) == (outcome, outcome == "right")
    assert graded("D13", Reading("select 7", tables), after=True).outcome == "right"
    assert graded("D13", Reading(None, refusal="stale")).outcome == "refused wrongly"


def test_a_needless_caveat_is_right_and_not_how_it_should_behave():
    found = graded("D03", Reading("select 7", ("sales.prod",), warnings=("who knows",)))
    assert (found.outcome, found.correct, found.behaved) == ("right", True, False)
    assert graded("D03", Reading("select 7", ("sales.prod",))).behaved
    assert graded("D15", Reading(None, refusal="absent")).behaved


def test_tables_of_a_changed_gold_are_its_own(tmp_path):
    (first,) = [
        question
        for question in json.loads(DEVELOPMENT.read_text("utf-8"))
        if question["id"] == "D09"
    ]
    assert "sales.cust" in first["gold"]
    assert first["tables"] == ["sales.ord"]
    later = first["gold"].replace("sales.ord o", "sales.ord_rpt o")

    def tables(**more):
        path = tmp_path / "questions.json"
        path.write_text(json.dumps([first | more]), "utf-8")
        (found,) = questions(path)
        return found.before.tables, found.after.tables

    assert tables() == (("sales.ord",), ("sales.ord",))
    assert tables(gold_after=later) == (("sales.ord",), ("sales.ord_rpt",))
    assert tables(gold_after=later, tables_after=["sales.ord"])[1] == ("sales.ord",)
    refused = {"gold_after": None, "behaviour_after": "refuse"}
    assert tables(**refused)[1] == ("sales.ord",)
    with pytest.raises(InvalidInputError, match=r"D09.*needs a reason_after"):
        tables(behaviour_after="warn")
    assert tables_chosen(wanted_of("D12", after=True)[1], ["support.tkt"]) == (1.0, 1 / 3)


def test_every_gold_of_the_development_questions_names_its_tables():
    for question in questions():
        for wanted in (question.before, question.after):
            named = set() if wanted.gold is None else set(sql_tables(wanted.gold))
            assert wanted.gold is None or set(wanted.tables) <= named, question.key


def sql_tables(sql):
    return [dotted(node) for node in table_nodes(parsed_select(sql))]
