"""Runs the questions in every condition and adds up what came of it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.agent_catalog.conditions import CONDITIONS, EVOLVED, Shown, conditions
from benchmarks.agent_catalog.domain import nordlicht_evolution
from benchmarks.agent_catalog.domain.nordlicht_tables import SCHEMAS
from benchmarks.agent_catalog.grading import (
    Graded,
    Rows,
    Said,
    grade,
    harmful,
    read,
    recalled,
    sentences,
    unmarked_tables,
)
from benchmarks.agent_catalog.intervals import mcnemar, wilson
from benchmarks.agent_catalog.lakes import today
from benchmarks.agent_catalog.questions import Question, Wanted
from lakehouse.agents.serving import Answer, describe_answer
from lakehouse.agents.words import token_estimate, words
from lakehouse.semantics.claims import Kind

BUDGETS = (500, 1500, 4000)
HEADLINE = 4000
"""The reader's score is that at the largest budget; it is given at the others, too."""

PAIRS = (
    ("C", "A"),
    ("C", "B"),
    ("C", "C shuffled"),
    ("D states", "D"),
    ("C", "D states"),
    ("C", "D"),
)
_FOLDER = Path(__file__).parent


@dataclass
class Tally:
    """What is added up of one condition."""

    graded: dict[int, dict[str, list[Graded]]] = field(default_factory=lambda: defaultdict(dict))
    recall: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    choice: list[tuple[float, float]] = field(default_factory=list)
    served: list[tuple[float, float]] = field(default_factory=list)
    harm: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    size: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    whole: list[tuple[int, int]] = field(default_factory=list)


def evaluate(
    questions: Sequence[Question],
    seeds: Sequence[int],
    names: Sequence[str] = tuple(CONDITIONS),
    *,
    scale: float = 1.0,
) -> dict[str, Any]:
    """The result as plain values: a part a condition, the comparisons, and every failure."""
    tallies = {name: Tally() for name in names}
    for seed in seeds:
        shown = conditions(seed, scale, list(names))
        says = sentences(shown["C"]) if "C" in shown else {}
        rows: dict[int, Rows] = {}
        for name, condition in shown.items():
            state = rows.setdefault(id(condition.tables), Rows(condition.tables))
            known_sentences = says if name == "C shuffled" else sentences(condition) or says
            tallies[name].whole.append(_whole(condition))
            for question in questions:
                _ask(
                    tallies[name],
                    name,
                    condition,
                    question,
                    state,
                    known_sentences,
                    seed,
                    stored=scale == 1.0,
                )
    parts = {name: _part(questions, tally) for name, tally in tallies.items()}
    return result_of(questions, seeds, scale, tallies, parts)


def result_of(
    questions: Sequence[Question],
    seeds: Sequence[int],
    scale: float,
    tallies: Mapping[str, Tally],
    parts: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """The conditions' parts, and the figures that compare them."""
    return {
        "questions": len(questions),
        "kinds": dict(Counter(question.kind for question in questions)),
        "seeds": list(seeds),
        "scale": scale,
        "frozen": frozen_digest(),
        "conditions": {name: {"what": CONDITIONS[name], **part} for name, part in parts.items()},
        "compared": {
            f"{condition} against {other}": mcnemar(
                right_ones(tallies[condition]), right_ones(tallies[other])
            )
            for condition, other in PAIRS
            if condition in tallies and other in tallies
        },
        "controls": _controls(questions, tallies),
        "overlap": overlap(questions),
        "failures": {name: list(_failures(questions, tally)) for name, tally in tallies.items()},
    }


def frozen_digest() -> str:
    """One digest of the reader's code and of the semantics, for the record of the freeze."""
    files = [*sorted((_FOLDER / "reader").glob("*.py")), *sorted((_FOLDER / "semantics").iterdir())]
    whole = hashlib.sha256()
    for file in files:
        if file.is_file():
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:16]


def _ask(
    tally: Tally, name: str, shown: Shown, question: Question, rows: Rows,
    says: Said, seed: int, *, stored: bool,
) -> None:  # fmt: skip
    wanted = question.after if name in EVOLVED else question.before
    expected = rows.expected(question, wanted, seed, stored=stored)
    false = _false() if name in EVOLVED else set()
    replaced = _replaced(shown)
    for budget in BUDGETS:
        answer, reading = read(shown, question, budget, today())
        result = grade(question, wanted, expected, rows, reading)
        tally.graded[budget].setdefault(question.key, []).append(result)
        share = recalled(question, answer.text, says)
        if share is not None:
            tally.recall[budget].append(share)
        unmarked, marked = harmful(shown, answer, false)
        tally.harm[budget].update(
            unmarked=unmarked, marked=marked, tables=unmarked_tables(shown, answer, replaced)
        )
        tally.size[budget].append((len(answer.text.encode()), answer.tokens))
        if budget == HEADLINE and wanted.tables:
            tally.choice.append(tables_chosen(wanted, reading.tables))
            tally.served.append(tables_chosen(wanted, answer.tables))


def tables_chosen(wanted: Wanted, tables: Iterable[str]) -> tuple[float, float]:
    """(precision, recall) of the tables taken; nothing taken is nothing right."""
    taken, right = set(tables), set(wanted.tables)
    both = len(taken & right)
    return (both / len(taken) if taken else 0.0), both / len(right)


def _false() -> set[str]:
    """Ids of the owners' statements that the evolution makes false."""
    steps = nordlicht_evolution.evolve(dict.fromkeys(SCHEMAS))
    return {
        question for step in steps for question in (*step["breaks"], *step["breaks_unverifiable"])
    }


def _replaced(shown: Shown) -> set[str]:
    """Tables whose statements send readers to another one."""
    return {
        statement.draft.table
        for statement in shown.catalog.statements
        if (statement.draft.kind is Kind.DEPRECATION or statement.draft.claim.get("instead"))
        and statement.draft.table in shown.catalog.tables
    }


def _whole(shown: Shown) -> tuple[int, int]:
    """(bytes, tokens) of all that the condition could show."""
    answers: list[Answer] = [
        describe_answer(shown.catalog, table, 1_000_000) for table in shown.catalog.tables.values()
    ]
    text = "\n".join(answer.text for answer in answers)
    return len(text.encode()), token_estimate(text)


def right_ones(tally: Tally, budget: int = HEADLINE) -> dict[str, bool]:
    """Whether a question was answered rightly at every seed."""
    return {
        key: all(answer.correct for answer in answers)
        for key, answers in tally.graded[budget].items()
    }


def answered_part(questions: Sequence[Question], tally: Tally) -> dict[str, Any]:
    """What came of the answers: accuracy, tables, refusals."""
    right = right_ones(tally)
    kinds: dict[str, list[bool]] = defaultdict(list)
    for question in questions:
        kinds[question.kind].append(right[question.key])
    results = [answer for answers in tally.graded[HEADLINE].values() for answer in answers]
    outcomes = Counter(result.outcome for result in results)
    precision, recall = (mean(pair[at] for pair in tally.choice) for at in (0, 1))
    count = sum(right.values())
    return {
        "reader": {
            "right": count,
            "accuracy": round(count / len(right), 4),
            "wilson_95": wilson(count, len(right)),
            "by_kind": {
                kind: f"{sum(rights)}/{len(rights)}" for kind, rights in sorted(kinds.items())
            },
            "outcomes": dict(sorted(outcomes.items())),
        },
        "behaviour": {
            "right": sum(
                all(answer.behaved for answer in answers)
                for answers in tally.graded[HEADLINE].values()
            ),
            "needless_caveats": sum(
                result.outcome in ("right", "wrong")
                and not result.behaved
                and bool(result.reading.warnings)
                for result in results
            ),
        },
        "table_choice": {"precision": precision, "recall": recall, "f1": _f1(precision, recall)},
        "refusals": {
            "right": outcomes["refused rightly"],
            "wrong": outcomes["refused wrongly"],
            "missed": outcomes["not refused"],
            "answers": len(results),
        },
    }


def _part(questions: Sequence[Question], tally: Tally) -> dict[str, Any]:
    answered = answered_part(questions, tally)
    answered["reader"]["by_budget"] = {
        str(budget): round(mean(map(float, right_ones(tally, budget).values())), 4)
        for budget in BUDGETS
    }
    served = [mean(pair[at] for pair in tally.served) for at in (0, 1)]
    return {
        **answered,
        "tables_served": {"precision": served[0], "recall": served[1]},
        "fact_recall": {str(budget): mean(tally.recall[budget]) for budget in BUDGETS},
        "harmful": {
            str(budget): {
                "false_unmarked": tally.harm[budget]["unmarked"],
                "false_marked": tally.harm[budget]["marked"],
                "replaced_tables_unmarked": tally.harm[budget]["tables"],
            }
            for budget in BUDGETS
        },
        "size": {
            str(budget): {
                "bytes": round(mean(float(size) for size, _ in tally.size[budget])),
                "tokens": round(mean(float(tokens) for _, tokens in tally.size[budget])),
            }
            for budget in BUDGETS
        },
        "whole_text": {
            "bytes": round(mean(float(size) for size, _ in tally.whole)),
            "tokens": round(mean(float(tokens) for _, tokens in tally.whole)),
        },
    }


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(fmean(numbers), 4) if numbers else 0.0


def _f1(precision: float, recall: float) -> float:
    both = precision + recall
    return round(2 * precision * recall / both, 4) if both else 0.0


def _controls(questions: Sequence[Question], tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """Checks of the evaluation itself; they may fail, and then say so."""
    checks: dict[str, Any] = {}
    if {"A", "C shuffled"} <= set(tallies):
        shuffled, bare = (
            sum(right_ones(tallies[condition]).values()) for condition in ("C shuffled", "A")
        )
        checks["shuffled falls to A or below"] = {
            "holds": shuffled <= bare, "shuffled": shuffled, "A": bare,
        }  # fmt: skip
    keys = [question.key for question in questions if question.kind == "control"]
    by_name = {
        name: [key for key in keys if right_ones(tally)[key]]
        for name, tally in tallies.items()
        if name in ("A", "B", "C")
    }
    if keys and by_name:
        checks["control questions do not differ"] = {
            "holds": len({tuple(answers) for answers in by_name.values()}) == 1,
            **{name: f"{len(rights)}/{len(keys)}" for name, rights in by_name.items()},
        }
    return checks


def overlap(questions: Sequence[Question]) -> dict[str, float]:
    """Shares of the questions' runs of 2, 3 and 4 stems that the semantics have as well."""
    catalog = [
        words(text.read_text("utf-8")) for text in sorted((_FOLDER / "semantics").glob("*.yaml"))
    ]
    shares = {}
    for length in (2, 3, 4):
        catalog_runs = {run for document in catalog for run in _runs(document, length)}
        question_runs = [
            run for question in questions for run in _runs(words(question.text), length)
        ]
        shares[f"{length} stems"] = round(
            sum(run in catalog_runs for run in question_runs) / len(question_runs), 4
        )
    return shares


def _runs(stems: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(stems[at : at + length]) for at in range(len(stems) - length + 1)]


def _failures(questions: Sequence[Question], tally: Tally) -> Iterable[dict[str, Any]]:
    for question in questions:
        for seed_number, answer in enumerate(tally.graded[HEADLINE][question.key]):
            if not answer.correct:
                yield {
                    "id": question.key,
                    "kind": question.kind,
                    "question": question.text,
                    "outcome": answer.outcome,
                    "value": answer.value,
                    "expected": answer.expected,
                    "sql": answer.reading.sql,
                    "refusal": answer.reading.refusal,
                    "warnings": list(answer.reading.warnings),
                    "seeds": f"{seed_number + 1} of {len(tally.graded[HEADLINE][question.key])}",
                }
                break
