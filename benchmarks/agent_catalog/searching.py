"""`python -m benchmarks.agent_catalog.searching`: search by words, and by words and an embedding.

No reader, no model: which tables and facts of the development questions an answer has. The same
map is searched by words alone (BM25), with latent semantic analysis of its own words beside them,
and with the same of character 3- to 5-grams. Once as it is, and once without its synonyms, where an
embedding has most to bring back. Both embeddings are made of the catalog's text; none is fetched.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.agent_catalog.__main__ import DEVELOPMENT, owners_statements
from benchmarks.agent_catalog.conditions import Shown, conditions
from benchmarks.agent_catalog.domain.nordlicht_tables import SCHEMAS
from benchmarks.agent_catalog.grading import recalled, sentences
from benchmarks.agent_catalog.questions import Question, load_questions
from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.ranking import LatentEmbedding
from lakehouse.agents.serving import search_answer
from lakehouse.agents.words import words
from lakehouse.semantics.claims import Kind

RESULT = Path(__file__).parents[1] / "results" / "agent_searching.json"
BUDGETS = (500, 1500, 4000)
FIRST = 5


def variants(catalog: CatalogMap) -> dict[str, CatalogMap]:
    """The map with each way of searching it."""
    return {
        "words": catalog,
        "words and LSA of words": replace(
            catalog, learn=lambda texts: LatentEmbedding.of(texts, words)
        ),
        "words and LSA of characters": replace(catalog, learn=LatentEmbedding.of),
    }


def measured(catalog: CatalogMap, shown: Shown, questions: Sequence[Question]) -> dict[str, Any]:
    """Of all questions."""
    says = sentences(replace(shown, catalog=catalog))
    began = time.perf_counter()
    catalog.prepare()
    made = (time.perf_counter() - began) * 1000
    facts: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    ranks, among, waited = [], [], []
    for question in questions:
        for budget in BUDGETS:
            began = time.perf_counter()
            answer = search_answer(catalog, question.text, budget)
            waited.append((time.perf_counter() - began) * 1000)
            share = recalled(question, answer.text, says)
            if share is not None:
                facts[budget].append(share)
        wanted = question.before.tables
        if wanted:
            places = [answer.tables.index(table) for table in wanted if table in answer.tables]
            ranks.append(1 / (1 + min(places)) if places else 0.0)
            among.append(sum(place < FIRST for place in places) / len(wanted))
    return {
        "facts": {budget: round(fmean(shares), 3) for budget, shares in facts.items()},
        "mean_reciprocal_rank": round(fmean(ranks), 3),
        f"tables_among_first_{FIRST}": round(fmean(among), 3),
        "search_ms": round(median(waited), 2),
        "map_made_ms": round(made),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, default=DEVELOPMENT)
    parser.add_argument("--json", type=Path, default=RESULT)
    arguments = parser.parse_args()
    questions = load_questions(arguments.questions, SCHEMAS, owners_statements())
    shown = conditions(1, 1.0, ["C"])["C"]
    silent = tuple(
        statement
        for statement in shown.catalog.statements
        if statement.draft.kind is not Kind.SYNONYMS
    )
    maps = {
        "as it is": shown.catalog,
        "without synonyms": replace(shown.catalog, statements=silent),
    }
    result: dict[str, Any] = {
        "benchmark": "agent_searching",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "questions": len(questions),
    }
    for name, catalog in maps.items():
        result[name] = {
            how: measured(variant, shown, questions) for how, variant in variants(catalog).items()
        }
        for how, measures in result[name].items():
            print(f"{name:18} {how:28} {measures}")
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
