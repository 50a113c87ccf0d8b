"""What a reader is shown in each condition: the same serving code, over another map."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.agent_catalog.lakes import Tables, World, build, evolve
from lakehouse.agents.catalog_map import CatalogMap, Stated
from lakehouse.agents.live_catalog import MapOptions, catalog_map
from lakehouse.curation.standard_fields import standard_fields, write_standard_fields
from lakehouse.curation.survey import Survey, survey

CONDITIONS = {
    "A": "names and types alone",
    "B": "a plain catalog: comments of tables and columns, samples, row counts",
    "C": "the enriched catalog",
    "C shuffled": "control: what is said is said of other tables",
    "A later": "names and types alone, after the evolution",
    "D": "the enriched catalog after the evolution, states not shown",
    "D states": "the enriched catalog after the evolution, states shown",
}
EVOLVED = ("A later", "D", "D states")
_NAMES = MapOptions(rows=False, docs=False, statements=False)
_PLAIN = MapOptions(samples=True, statements=False)


@dataclass(frozen=True)
class Shown:
    """A condition at a seed.

    Attributes:
        catalog: what is served from.
        tables: the rows that answers are graded on.
        seen: the table versions that the catalog is of; None where no query is run on them.
    """

    catalog: CatalogMap
    tables: Tables
    seen: Survey | None = None


def conditions(seed: int, scale: float, names: list[str]) -> dict[str, Shown]:
    """The maps of a seed, by condition."""
    world = build(seed, scale)
    by_name = _before(world, seed)
    if set(names) & set(EVOLVED):
        by_name |= _after(evolve(world))
    return {name: by_name[name] for name in CONDITIONS if name in names}


def _before(world: World, seed: int) -> dict[str, Shown]:
    seen = survey(world.lake)
    enriched = catalog_map(seen)
    maps = {
        "A": catalog_map(seen, _NAMES),
        "C": enriched,
        "C shuffled": shuffled(enriched, seed),
    }
    write_standard_fields(world.lake, standard_fields(world.checked))
    maps["B"] = catalog_map(survey(world.lake), _PLAIN)
    return {name: Shown(catalog, world.tables, seen) for name, catalog in maps.items()}


def _after(world: World) -> dict[str, Shown]:
    seen = survey(world.lake)
    options = MapOptions(docs=False)
    maps = {
        "A later": catalog_map(seen, _NAMES),
        "D": catalog_map(seen, replace(options, states=False)),
        "D states": catalog_map(seen, options),
    }
    return {name: Shown(catalog, world.tables, seen) for name, catalog in maps.items()}


def shuffled(catalog: CatalogMap, seed: int) -> CatalogMap:
    """The same map with each table's statements given to another one, by chance of the seed."""
    names = sorted(catalog.tables)
    others = _derangement(names, seed)
    moved = tuple(
        Stated(replace(statement.draft, table=others[statement.draft.table]), statement.standing)
        for statement in catalog.statements
        if statement.draft.table in others
    )
    return replace(catalog, statements=moved)


def _derangement(names: list[str], seed: int) -> Mapping[str, str]:
    order = list(names)
    random.Random(seed).shuffle(order)
    return dict(zip(order, order[1:] + order[:1], strict=True))
