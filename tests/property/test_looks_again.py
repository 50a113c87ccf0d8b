"""A look that is made of the one before says what a look from nothing says, whatever happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.live_catalog import catalog_map
from lakehouse.agents.serving import describe_answer, map_answer, search_answer
from lakehouse.curation.checkup import check
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from tests.property.statement_worlds import World

STEPS = 25
QUESTIONS = ("amount of booked orders per customer", "what did the customer write", "total by day")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_look_again_says_what_a_first_look_says(tmp_path, seed):
    world = World(seed, tmp_path)
    seen, found = None, None
    for number in range(STEPS):
        change, _ = world.step()
        if number % 3 == 1:  # verifications change, tables do not
            StatementStore(world.lake).record(check(survey(world.lake))[1])
        if number % 5 == 4:  # words change
            _reword(world, f"said {number}")
        seen, fresh = survey(world.lake, earlier=seen), survey(world.lake)
        where = f"seed {seed}, step {number}: {change}"
        assert seen.standings() == fresh.standings(), where
        drafts = {statement.statement_id: seen.draft(statement) for statement in seen.statements}
        assert drafts == {
            statement.statement_id: fresh.draft(statement) for statement in fresh.statements
        }, where
        found = catalog_map(seen, earlier=found)
        assert _texts(found) == _texts(catalog_map(fresh)), where


def _reword(world: World, text: str) -> None:
    store = StatementStore(world.lake)
    (one,) = [
        statement for statement in store.statements() if statement.statement_id == "described"
    ]
    if text.endswith("9"):
        store.remove([one.statement_id])
        store.put([one])
        return
    store.put([replace(one, draft=replace(one.draft, text=text))])


def _texts(catalog: CatalogMap) -> list[str]:
    return [
        map_answer(catalog),
        *(describe_answer(catalog, table, 4_000).text for table in catalog.tables.values()),
        *(
            search_answer(catalog, question, budget).text
            for question in QUESTIONS
            for budget in (300, 1_500)
        ),
    ]
