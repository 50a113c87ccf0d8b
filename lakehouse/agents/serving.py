"""Answers for agents: facts that fit into a given size, and what narrow questions ask for.

How tables are joined, what a metric is, how fresh a table is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from lakehouse.agents.catalog_map import CatalogMap, MappedTable, Stated
from lakehouse.agents.lines import LEGEND, statement_line
from lakehouse.agents.words import abbreviates, quoted, token_estimate, words
from lakehouse.errors import NoSuchTableError
from lakehouse.semantics.binding import split_column
from lakehouse.semantics.claims import Kind
from lakehouse.table import Table

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
_LEGEND_TOKENS = token_estimate(LEGEND)
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
    statements: list[Stated] = field(default_factory=list)


class _Question:
    """A question, and which names it has."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.words = words(question)
        self._distinct = frozenset(self.words)
        self._parts: dict[str, bool] = {}

    def names(self, column: str, shortest: int = 1) -> bool:
        """Whether a part of a column's name, of so many letters, stands for a word of it."""
        return any(len(word) >= shortest and self._names(word) for word in _name_words(column))

    def named(self, catalog: CatalogMap) -> dict[str, int]:
        """Statement that has a name of its own in it -> words of the longest such name."""
        lengths: dict[str, int] = {}
        for length in range(1, min(_LONGEST, len(self.words)) + 1):
            for at in range(len(self.words) - length + 1):
                for statement in catalog.by_phrase.get(tuple(self.words[at : at + length]), ()):
                    if statement.draft.kind in _PHRASE_KINDS:
                        lengths[statement.key] = length
        return lengths

    def _names(self, part: str) -> bool:
        if part not in self._parts:
            self._parts[part] = part in self._distinct or any(
                abbreviates(part, word) for word in self._distinct
            )
        return self._parts[part]


def search_answer(catalog: CatalogMap, question: str, budget: int) -> Answer:
    """The facts of the catalog that a question needs, in at most `budget` tokens.

    What is left of the budget goes to names and types of the other tables.
    """
    parsed_question = _Question(question)
    named = parsed_question.named(catalog)
    ranked = _ranked_tables(catalog, parsed_question, named)
    worth = _statement_worth(catalog, dict(ranked), parsed_question, named)
    chosen = [name for name, _ in ranked]
    others = [name for name in catalog.tables if name not in chosen]
    return _packed(catalog, chosen, worth, parsed_question, budget, others)


def describe_answer(catalog: CatalogMap, table: MappedTable, budget: int) -> Answer:
    """All that is known of a table, the most important first, in at most `budget` tokens."""
    worth = {
        statement.key: _STANDING[statement.draft.kind]
        + _ALWAYS * bool(statement.draft.claim.get("mandatory"))
        for statement in catalog.by_table[table.name]
    }
    return _packed(catalog, [table.name], worth, _Question(" ".join(table.columns)), budget)


def _ranked_tables(
    catalog: CatalogMap, question: _Question, named: Mapping[str, int]
) -> list[tuple[str, float]]:
    """Tables that fit the question with scores, the best first; what they point to comes along."""
    by_word = catalog.table_ranking.lexical.by_word(question.words)
    scores = catalog.table_ranking.scores(question.question, by_word)
    best = max(scores.values(), default=0.0)
    for key in sorted(named, key=catalog.places.__getitem__):
        table = catalog.by_key[key].draft.table
        if table in scores:
            scores[table] += (0.06 if named[key] == 1 else 0.12) * best
    if not scores:
        return []
    best = max(scores.values())
    for scores_of_word in by_word.values():
        if 0 < len(scores_of_word) <= _TELLING:
            name = max(scores_of_word, key=lambda name: (scores_of_word[name], name))
            scores[name] = max(scores[name], _COVERED * best)
    best_first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    chosen = dict([item for item in best_first if item[1] >= _FAR_BELOW * best][:_TABLES_MOST])
    for name, score in list(chosen.items()):
        for stated in catalog.by_table[name]:
            if stated.draft.kind in (Kind.DEPRECATION, Kind.FRESHNESS) and not stated.contradicted:
                for other, _ in catalog.mentions[stated.key]:
                    if other in catalog.tables:
                        chosen[other] = max(chosen.get(other, 0.0), 0.8 * score)
    return sorted(chosen.items(), key=lambda item: (-item[1], item[0]))


def _statement_worth(
    catalog: CatalogMap, tables: Mapping[str, float], question: _Question, named: Mapping[str, int]
) -> dict[str, float]:
    """Statement -> worth: by its kind, its table, its own fit, and what it is linked to."""
    ranking = catalog.statement_ranking
    relevance = ranking.scores(question.question, ranking.lexical.by_word(question.words))
    best_table = max(tables.values(), default=1.0)
    best = max(relevance.values(), default=1.0) or 1.0
    worth: dict[str, float] = {}
    for candidate in _candidates(catalog, tables):
        draft = candidate.draft
        share = (tables.get(draft.table, 0.0) / best_table) ** 1.5
        if not share and draft.kind is not Kind.ABSENCE:
            continue
        fits = relevance.get(candidate.key, 0.0) / best
        length = named.get(candidate.key, 0)
        column_named = draft.column is not None and question.names(draft.column, 2)
        standing = _STANDING[draft.kind] + _ALWAYS * bool(draft.claim.get("mandatory"))
        worth[candidate.key] = (
            share * (standing + _COLUMN_NAMED * column_named)
            + _RELEVANT * fits * (0.4 + 0.6 * share)
            + (_PHRASE * (0.7 if length == 1 else 1.0) * (0.3 + 0.7 * share) if length else 0.0)
        )
    _follow_links(catalog, tables, worth)
    return worth


def _candidates(catalog: CatalogMap, tables: Iterable[str]) -> list[Stated]:
    """Statements about these tables, and about what there is nowhere, in their order."""
    candidates = [statement for name in tables for statement in catalog.by_table.get(name, ())]
    candidates += [absence for absence in catalog.absences if absence.draft.table not in tables]
    return sorted(candidates, key=lambda statement: catalog.places[statement.key])


@lru_cache(maxsize=50_000)
def _name_words(column: str) -> tuple[str, ...]:
    """The words that a column's name is made of."""
    return tuple(words(column))


def _follow_links(
    catalog: CatalogMap, tables: Mapping[str, float], worth: dict[str, float]
) -> None:
    """What a valuable statement mentions (a rate, a joined table) is worth knowing as well."""
    valuable = sorted(worth, key=lambda key: -worth[key])[:24]
    for key in valuable:
        for table, column in catalog.mentions[key]:
            kinds = _JOINED_KINDS if column is None else _LINKED_KINDS
            for linked in catalog.by_table.get(table, ()):
                is_linked = column is None or linked.draft.column == column
                if is_linked and linked.draft.kind in kinds:
                    gained = (0.35 if column is None else 0.7) * worth[key]
                    worth[linked.key] = max(worth.get(linked.key, 0.0), gained)
    for key in worth:
        draft = catalog.by_key[key].draft
        if draft.kind in (Kind.WARNING, Kind.FRESHNESS):
            others = {table for table, _ in catalog.mentions[key]} & tables.keys()
            worth[key] += 0.8 * bool(others - {draft.table})


def _packed(
    catalog: CatalogMap,
    chosen: list[str],
    worth: dict[str, float],
    question: _Question,
    budget: int,
    others: Sequence[str] = (),
) -> Answer:
    blocks: dict[str, _Block] = {}
    spent = _LEGEND_TOKENS + 1
    other_tables = [catalog.tables[name] for name in others]
    queue = chain(
        _interleaved(catalog, chosen, worth, question),
        ((table, column) for table in other_tables for column in table.columns),
    )
    served: dict[str, None] = {}
    for table, place in queue:
        if isinstance(place, Stated) and place.key in served:
            continue
        block, notices = blocks.get(table.name), catalog.notices[table.name]
        head = 0
        if block is None:
            head = table.head[1] + 1 + sum(notice.line[1] + 1 for notice in notices)
        column = _column_of(table, place)
        if column is not None and block is not None and column in block.columns:
            column = None
        cell = 0 if column is None else table.cells[column][1] + 2
        line = 0
        if isinstance(place, Stated) and place not in notices:
            line = place.line[1] + 1
        if spent + head + cell + line > budget:
            # a column's statements may not fit; the column itself comes first
            if column is None or spent + head + cell > budget:
                continue
            line, place = 0, column
        spent += head + cell + line
        if block is None:
            block = blocks[table.name] = _Block(table, statements=list(notices))
            served |= dict.fromkeys(notice.key for notice in notices)
        if column is not None:
            block.columns.append(column)
        if isinstance(place, Stated) and place.key not in served:
            block.statements.append(place)
            served[place.key] = None
    ordered = [blocks[name] for name in chosen if name in blocks]
    ordered += [block for name, block in blocks.items() if name not in chosen]
    text = "\n".join([LEGEND, *(line for block in ordered for line in _block_lines(block))])
    return Answer(text, [block.table.name for block in ordered], list(served))


def _column_of(table: MappedTable, place: Stated | str) -> str | None:
    """The column of the table that a place is, or says something of."""
    if isinstance(place, str):
        return place
    name = (place.draft.column or "").partition(".")[0]
    return name if name in table.cells else None


def _interleaved(
    catalog: CatalogMap, chosen: list[str], worth: dict[str, float], question: _Question
) -> Iterable[tuple[MappedTable, Stated | str]]:
    """What to say, the most valuable first; columns that the question does not name come last."""
    items: list[tuple[float, int, MappedTable, Stated | str]] = []
    later: list[tuple[MappedTable, str]] = []
    for place, name in enumerate(chosen):
        table = catalog.tables[name]
        share = 1.0 - place / (len(chosen) + 1)
        for at, column in enumerate(table.columns):
            is_named = question.names(column)
            if is_named or place < 2:
                items.append(((2.2 if is_named else 1.1) * share, at, table, column))
            else:
                later.append((table, column))
    for key, value in worth.items():
        stated = catalog.by_key[key]
        if value > 0 and stated.draft.table in catalog.tables:
            items.append((value, 0, catalog.tables[stated.draft.table], stated))
    items.sort(key=lambda item: -item[0])
    yield from ((table, thing) for _, _, table, thing in items)
    yield from later


def _block_lines(block: _Block) -> list[str]:
    lines = [block.table.head[0]]
    order = block.table.columns
    if block.columns:
        shown = sorted(block.columns, key=order.index)
        lines.append("cols: " + ", ".join(block.table.cells[column][0] for column in shown))
    ranks = {Kind.DESCRIPTION: -2, Kind.DEPRECATION: -3}
    lines += [
        stated.line[0]
        for stated in sorted(
            block.statements,
            key=lambda statement: (
                ranks.get(statement.draft.kind, 0),
                statement.draft.column or "",
            ),
        )
    ]
    return lines


_HOPS = 4


def join_path(catalog: CatalogMap, start: str, goal: str) -> str:
    """The shortest chain of joins that statements declare, a line each, and grains on the way.

    Contradicted joins are used only where nothing else leads there, and are marked.

    Raises:
        NoSuchTableError: there is no such table.
    """
    for name in (start, goal):
        _check_table(catalog, name)
    joins = [statement for statement in catalog.statements if statement.draft.kind is Kind.JOIN]
    sound = [join for join in joins if not join.contradicted]
    chain = _chain(catalog, sound, start, goal) or _chain(catalog, joins, start, goal)
    if chain is None:
        return (
            f"{LEGEND}\nNo statement says how {start} and {goal} are joined: equal names of "
            "columns are no proof."
        )
    passed = list(
        dict.fromkeys([start, *(name for join in chain for name in _ends(catalog, join))])
    )
    lines = [f"{join.draft.table}: {_line(join)}" for join in chain]
    for name in passed:
        lines += [
            f"{_head(catalog, name)} {_line(statement)}"
            for statement in catalog.by_table[name]
            if statement.draft.kind is Kind.GRAIN
        ]
    lines += [
        f"{' to '.join(_ends(catalog, join))} is {cardinality}: rows of the one side repeat."
        for join in chain
        if "many" in (cardinality := join.draft.claim["cardinality"])
    ]
    return "\n".join([LEGEND, *lines])


def metric_answer(catalog: CatalogMap, name: str) -> str:
    """Metrics of a name or synonym, with the filters that hold for their tables."""
    phrase = tuple(words(name))
    metrics = [
        statement
        for statement in catalog.statements
        if statement.draft.kind is Kind.METRIC and phrase in statement.phrases
    ]
    if not metrics:
        ranked = catalog.statement_ranking.scores(name)
        similar = [
            catalog.by_key[key].draft.claim["name"]
            for key in sorted(ranked, key=lambda key: -ranked[key])
            if catalog.by_key[key].draft.kind is Kind.METRIC
        ][:5]
        listed = ", ".join(quoted(name) for name in similar) or "none near"
        return f"{LEGEND}\nThere is no metric {quoted(name)}; {listed}."
    lines = [f"{_head(catalog, statement.draft.table)} {_line(statement)}" for statement in metrics]
    tables = dict.fromkeys(
        table
        for statement in metrics
        for table in (statement.draft.table, *statement.draft.claim.get("joins", ()))
        if table in catalog.tables
    )
    lines += [
        f"{table}: {_line(statement)}"
        for table in tables
        for statement in catalog.by_table[table]
        if statement.draft.kind in (Kind.DEPRECATION, Kind.FRESHNESS)
        or (statement.draft.kind is Kind.FILTER and statement.draft.claim.get("mandatory"))
    ]
    return "\n".join([LEGEND, *lines])


def freshness_answer(catalog: CatalogMap, table: Table) -> str:
    """When a table was last written, and the statements about its freshness.

    Raises:
        NoSuchTableError: the map has no such table.
    """
    _check_table(catalog, table.name)
    snapshot = table.current_snapshot()
    if snapshot is None:
        written = "no snapshot: nothing was written yet"
    else:
        at = snapshot.committed_at.isoformat(timespec="seconds")
        written = f"last written {at} by {snapshot.operation}"
    kinds = (Kind.FRESHNESS, Kind.DEPRECATION, Kind.OWNER)
    lines = [
        _line(statement)
        for statement in catalog.by_table[table.name]
        if statement.draft.kind in kinds
    ]
    return "\n".join([LEGEND, f"{_head(catalog, table.name)} {written}", *lines])


def map_answer(catalog: CatalogMap) -> str:
    """All tables, a line each: what they are, their rows and their snapshot."""
    lines = []
    for name in catalog.tables:
        marks = [
            statement_line(statement.draft, statement.standing)
            for statement in catalog.by_table[name]
            if statement.draft.column is None
            and statement.draft.kind in (Kind.DESCRIPTION, Kind.DEPRECATION)
        ]
        lines.append(" ".join([_head(catalog, name), *marks]))
    return "\n".join([LEGEND, *lines])


def _check_table(catalog: CatalogMap, name: str) -> None:
    if name not in catalog.tables:
        listed = ", ".join(list(catalog.tables)[:10])
        raise NoSuchTableError(f"There is no table {name}; there are {listed}", table=name)


def _head(catalog: CatalogMap, name: str) -> str:
    table = catalog.tables[name]
    rows = "" if table.rows is None else f" rows={table.rows}"
    return f"{name} snapshot={table.snapshot_id}{rows}"


def _line(statement: Stated) -> str:
    return statement_line(statement.draft, statement.standing)


def _ends(catalog: CatalogMap, join: Stated) -> tuple[str, str]:
    """The tables of a join, that of the statement first."""
    draft = join.draft
    return draft.table, split_column(draft.claim["to"][0], draft.table, catalog.tables)[0]


def _chain(
    catalog: CatalogMap, joins: Sequence[Stated], start: str, goal: str
) -> list[Stated] | None:
    """The fewest joins from one table to another; None when there are none."""
    ways: list[tuple[str, list[Stated]]] = [(start, [])]
    seen = {start}
    for _ in range(_HOPS):
        longer: list[tuple[str, list[Stated]]] = []
        for at, way in ways:
            for join in joins:
                table, other = _ends(catalog, join)
                other_end = other if at == table else table
                if at not in (table, other) or other_end in seen:
                    continue
                if other_end == goal:
                    return [*way, join]
                longer.append((other_end, [*way, join]))
        seen |= {at for at, _ in longer}
        ways = longer
    return None
