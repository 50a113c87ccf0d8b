"""Which facts go into an answer of a given size: the tables that fit, and of each the facts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from lakehouse.agents.catalog_map import CatalogMap, MappedTable, Stated
from lakehouse.agents.lines import LEGEND
from lakehouse.agents.words import abbreviates, quoted, token_estimate, words
from lakehouse.semantics.claims import Kind

_TABLES_MOST = 8
_FAR_BELOW = 0.22
"""Tables whose score is below this share of the best are left out."""

_TELLING, _COVERED = 4, 0.6
"""A word that so few tables have brings the best of them along, at this share of the best score."""
_STANDING = {
    Kind.DEPRECATION: 6.0,
    Kind.DESCRIPTION: 1.2,
    Kind.GRAIN: 2.4,
    Kind.FRESHNESS: 2.6,
    Kind.FILTER: 2.0,
    Kind.METRIC: 1.0,
    Kind.UNIT: 0.9,
    Kind.CODES: 0.7,
    Kind.JOIN: 0.9,
    Kind.VALIDITY: 0.9,
    Kind.ABSENCE: 0.5,
    Kind.WARNING: 0.4,
    Kind.SYNONYMS: 0.1,
    Kind.OWNER: -1.0,
    Kind.SAMPLES: 0.0,
}
"""What a statement is worth whatever the question, by kind, for a table that fits it."""

_ALWAYS = 2.0
_COLUMN_NAMED = 1.0
_RELEVANT = 2.5
_LONGEST = 8
_PHRASE = 4.0
"""For a statement that has a name of its own in the question, whatever its table."""
_PHRASE_KINDS = (
    Kind.CODES,
    Kind.FILTER,
    Kind.METRIC,
    Kind.SYNONYMS,
    Kind.ABSENCE,
    Kind.DESCRIPTION,
)
_LINKED_KINDS = (Kind.UNIT, Kind.CODES, Kind.VALIDITY)
_JOINED_KINDS = (Kind.UNIT, Kind.CODES, Kind.GRAIN, Kind.JOIN)


@dataclass
class Answer:
    """Text for an agent, and what is in it.

    Attributes:
        text: within the budget.
        tables: the tables that it describes, the best first, those that do not fit last.
        statements: ids of the statements in it.
        tokens: what it is estimated to cost.
    """

    text: str
    tables: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """See `words.token_estimate`."""
        return token_estimate(self.text)


@dataclass
class _Block:
    """The lines of one table, filled as the budget allows."""

    table: MappedTable
    columns: list[str] = field(default_factory=list)
    lines: list[tuple[Stated, str]] = field(default_factory=list)

    def head(self) -> str:
        snapshot = f" snapshot={self.table.snapshot_id}" if self.table.snapshot_id else ""
        rows = f" rows={self.table.rows}" if self.table.rows is not None else ""
        said = f" {quoted(self.table.comment)}" if self.table.comment else ""
        return f"# {self.table.name}{snapshot}{rows}{said}"


def search_answer(catalog: CatalogMap, question: str, budget: int) -> Answer:
    """The facts of the catalog that a question needs, in at most `budget` tokens.

    What is left of the budget goes to names and types of the other tables.
    """
    ranked = ranked_tables(catalog, question)
    chosen = [name for name, _ in ranked]
    relevance = catalog.statement_ranking.scores(question)
    worth = statement_worth(catalog, dict(ranked), relevance, question)
    others = [name for name in catalog.tables if name not in chosen]
    return _packed(catalog, chosen, worth, question, budget, others)


def describe_answer(catalog: CatalogMap, table: MappedTable, budget: int) -> Answer:
    """All that is known of a table, the most important first, in at most `budget` tokens."""
    worth = {
        one.key: _STANDING[one.draft.kind] + _ALWAYS * bool(one.draft.claim.get("mandatory"))
        for one in catalog.by_table[table.name]
    }
    return _packed(catalog, [table.name], worth, " ".join(table.columns), budget)


def ranked_tables(catalog: CatalogMap, question: str) -> list[tuple[str, float]]:
    """Tables that fit the question with scores, the best first; what they point to comes along."""
    scores = dict(catalog.table_ranking.scores(question))
    asked = words(question)
    best = max(scores.values(), default=0.0)
    runs = _runs(asked)
    for key, phrases in catalog.phrases.items():
        stated = catalog.by_key[key]
        length = _longest(phrases, runs)
        if length and stated.draft.table in scores and stated.draft.kind in _PHRASE_KINDS:
            scores[stated.draft.table] += (0.06 if length == 1 else 0.12) * best
    if not scores:
        return []
    best = max(scores.values())
    for found_by_word in catalog.table_ranking.lexical.by_word(question).values():
        if 0 < len(found_by_word) <= _TELLING:
            name = max(found_by_word, key=lambda one: (found_by_word[one], one))
            scores[name] = max(scores[name], _COVERED * best)
    found = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    kept = dict([item for item in found if item[1] >= _FAR_BELOW * best][:_TABLES_MOST])
    for name, score in list(kept.items()):
        for stated in catalog.by_table[name]:
            if stated.draft.kind in (Kind.DEPRECATION, Kind.FRESHNESS) and not stated.contradicted:
                for other, _ in catalog.mentions[stated.key]:
                    if other in catalog.tables:
                        kept[other] = max(kept.get(other, 0.0), 0.8 * score)
    return sorted(kept.items(), key=lambda item: (-item[1], item[0]))


def statement_worth(
    catalog: CatalogMap, tables: dict[str, float], relevance: dict[str, float], question: str
) -> dict[str, float]:
    """Statement -> worth: by its kind, its table, its own fit, and what it is linked to."""
    best_table = max(tables.values(), default=1.0)
    best = max(relevance.values(), default=1.0) or 1.0
    asked = words(question)
    distinct = list(dict.fromkeys(asked))
    runs = _runs(asked)
    worth: dict[str, float] = {}
    for one in catalog.statements:
        draft = one.draft
        share = (tables.get(draft.table, 0.0) / best_table) ** 1.5
        if draft.table not in catalog.tables or (not share and draft.kind is not Kind.ABSENCE):
            continue
        fits = relevance.get(one.key, 0.0) / best
        length = _longest(catalog.phrases[one.key], runs) if draft.kind in _PHRASE_KINDS else 0
        named = draft.column is not None and _names(draft.column, distinct)
        standing = _STANDING[draft.kind] + _ALWAYS * bool(draft.claim.get("mandatory"))
        worth[one.key] = (
            share * (standing + _COLUMN_NAMED * named)
            + _RELEVANT * fits * (0.4 + 0.6 * share)
            + (_PHRASE * (0.7 if length == 1 else 1.0) * (0.3 + 0.7 * share) if length else 0.0)
        )
    _follow_links(catalog, tables, worth)
    return worth


@lru_cache(maxsize=50_000)
def _tokens(text: str) -> int:
    """Of short texts that come again with each question."""
    return token_estimate(text)


@lru_cache(maxsize=50_000)
def _name_words(column: str) -> tuple[str, ...]:
    """The words that a column's name is made of."""
    return tuple(words(column))


def _runs(asked: Sequence[str]) -> set[tuple[str, ...]]:
    """Every run of up to _LONGEST words of a question."""
    return {
        tuple(asked[at : at + length])
        for length in range(1, _LONGEST + 1)
        for at in range(len(asked) - length + 1)
    }


def _longest(phrases: Sequence[tuple[str, ...]], runs: Container[tuple[str, ...]]) -> int:
    """Words of the longest phrase that the question has, word after word."""
    return max((len(phrase) for phrase in phrases if phrase in runs), default=0)


def _names(column: str, asked: Sequence[str]) -> bool:
    parts = [part for part in _name_words(column) if len(part) > 1]
    return any(part == word or abbreviates(part, word) for part in parts for word in asked)


def _follow_links(catalog: CatalogMap, tables: dict[str, float], worth: dict[str, float]) -> None:
    """What a valuable statement mentions (a rate, a joined table) is worth knowing as well."""
    valuable = sorted(worth, key=lambda key: -worth[key])[:24]
    for key in valuable:
        for table, column in catalog.mentions[key]:
            kinds = _JOINED_KINDS if column is None else _LINKED_KINDS
            for linked in catalog.by_table.get(table, ()):
                near = column is None or linked.draft.column == column
                if near and linked.draft.kind in kinds:
                    gained = (0.35 if column is None else 0.7) * worth[key]
                    worth[linked.key] = max(worth.get(linked.key, 0.0), gained)
    for one in catalog.statements:
        if one.key in worth and one.draft.kind in (Kind.WARNING, Kind.FRESHNESS):
            others = {table for table, _ in catalog.mentions[one.key]} & set(tables)
            worth[one.key] += 0.8 * bool(others - {one.draft.table})


def _packed(
    catalog: CatalogMap,
    chosen: list[str],
    worth: dict[str, float],
    question: str,
    budget: int,
    others: Sequence[str] = (),
) -> Answer:
    blocks: dict[str, _Block] = {}
    spent = token_estimate(LEGEND) + 1
    asked = set(words(question))
    rest = [catalog.tables[name] for name in others]
    queue = chain(
        _interleaved(catalog, chosen, worth, asked),
        ((table, column) for table in rest for column in table.columns),
    )
    served: dict[str, None] = {}
    for table, place in queue:
        block = blocks.get(table.name)
        cost = 0
        if block is None:
            block = _Block(table)
            notices = catalog.notices[table.name]
            cost = _tokens(block.head()) + 1 + sum(catalog.lines[o.key][1] + 1 for o in notices)
            block.lines += [(one, catalog.lines[one.key][0]) for one in notices]
        if isinstance(place, Stated):
            if place.key in served:
                continue
            text, tokens = catalog.lines[place.key]
            noticed = place in catalog.notices[table.name]
            cost += 0 if noticed else tokens + 1
        else:
            cost += _tokens(column_text(table, place)) + 2
        if spent + cost > budget:
            continue
        spent += cost
        blocks[table.name] = block
        served |= dict.fromkeys(one.key for one, _ in block.lines)
        if not isinstance(place, Stated):
            block.columns.append(place)
        elif place.key not in served:
            block.lines.append((place, text))
            served[place.key] = None
    ordered = [blocks[name] for name in chosen if name in blocks]
    ordered += [block for name, block in blocks.items() if name not in chosen]
    text = "\n".join([LEGEND, *(line for block in ordered for line in _block_lines(block))])
    return Answer(text, [block.table.name for block in ordered], list(served))


def _interleaved(
    catalog: CatalogMap, chosen: list[str], worth: dict[str, float], asked: set[str]
) -> Iterable[tuple[MappedTable, Stated | str]]:
    """What to say, the most valuable first; columns that the question does not name come last."""
    items: list[tuple[float, int, MappedTable, Stated | str]] = []
    rest: list[tuple[MappedTable, str]] = []
    for place, name in enumerate(chosen):
        table = catalog.tables[name]
        share = 1.0 - place / (len(chosen) + 1)
        for at, column in enumerate(table.columns):
            near = any(
                p in asked or any(abbreviates(p, w) for w in asked) for p in _name_words(column)
            )
            if near or place < 2:
                items.append(((2.2 if near else 1.1) * share, at, table, column))
            else:
                rest.append((table, column))
    for key, value in worth.items():
        stated = catalog.by_key[key]
        if value > 0 and stated.draft.table in catalog.tables:
            items.append((value, 0, catalog.tables[stated.draft.table], stated))
    items.sort(key=lambda item: -item[0])
    yield from ((table, thing) for _, _, table, thing in items)
    yield from rest


def column_text(table: MappedTable, column: str) -> str:
    """`st int`, with its comment and samples where the map has them."""
    field_ = table.schema.find_field(column)
    text = f"{column} {field_.field_type}"
    if doc := table.docs.get(column):
        text += f" {quoted(doc, 600)}"
    if values := table.samples.get(column):
        text += f" e.g. {', '.join(quoted(one, 40) for one in values)}"
    return text


def _block_lines(block: _Block) -> list[str]:
    lines = [block.head()]
    order = block.table.columns
    if block.columns:
        shown = sorted(block.columns, key=order.index)
        lines.append("cols: " + ", ".join(column_text(block.table, one) for one in shown))
    ranks = {Kind.DESCRIPTION: -2, Kind.DEPRECATION: -3}
    lines += [
        text
        for stated, text in sorted(
            block.lines,
            key=lambda item: (ranks.get(item[0].draft.kind, 0), item[0].draft.column or ""),
        )
    ]
    return lines
