"""Which table, column or metric a question is about, and which conditions it names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.agent_catalog.reader.channel_text import Fact, ReadTable
from benchmarks.agent_catalog.reader.question_grammar import Asked
from lakehouse.agents.words import abbreviates, stem, words

_NUMERIC = re.compile(r"int|long|float|double|decimal")
_KEY = re.compile(r"(^|_)(id|no|sk|cd|key|nr)$")
_COMMON = {"px": "price", "no": "number", "cd": "code", "nr": "number", "fx": "exchange"}
_LEFT_OUT = r"\w* (?:are |were |being )?(?:deducted|subtracted|excluded|removed|left out|taken out)"
_NEGATED = {"not", "neither", "nor", "without", "excluding", "except", "no", "non", "leaving"}
_MISSING, _BAG, _DEPRECATED = 0.6, 0.25, 0.4
_WORTH = {stem(word) for word in ("worth", "value", "amount", "money", "total")}
_TRIED, _LEAST_FIT = 8, 0.5
_UP = ("many_to_one", "one_to_one")

Phrase = tuple[str, ...]
Edge = tuple[str, str, Fact]
"""From, to, and the join: `pairs` run from the table of the fact to its `to`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be meant.

    Attributes:
        table: dotted name.
        column: the measure; empty for rows of the table.
        metric: the metric; None for a column.
        score: how well the names fit.
    """

    table: str
    column: str
    metric: Fact | None
    score: float


@dataclass(frozen=True, slots=True)
class Condition:
    """A code that the question names.

    Attributes:
        table, column, code: what is compared.
        negated: whether it is named to be left out.
        at: positions of its words among the question's stems.
    """

    table: str
    column: str
    code: str
    negated: bool
    at: tuple[int, ...]


class Linker:
    """Links a question to what a text says.

    Args:
        tables: the text, read.
        asked: the question.
    """

    def __init__(self, tables: dict[str, ReadTable], asked: Asked) -> None:
        self.tables = tables
        self.asked = asked
        self._df: dict[str, int] = {}
        for table in tables.values():
            words_of_table = {word for phrase in self._table_phrases(table) for word in phrase}
            for column in self.columns(table):
                words_of_table |= {
                    word for phrase in self.column_phrases(table, column) for word in phrase
                }
            for word in words_of_table:
                self._df[word] = self._df.get(word, 0) + 1

    def absent(self) -> Fact | None:
        """What the text says is in no table, if the question asks for it."""
        for table in self.tables.values():
            for fact in table.of("absence"):
                phrases = [tuple(words(name)) for name in fact.claim["names"]]
                for phrase in phrases:
                    asked_for = len(phrase) > 1 or set(phrase) & set(self.asked.nouns)
                    if asked_for and self.positions(phrase):
                        return fact
        return None

    def measures(self, within: str | None = None) -> list[Candidate]:
        """What the figure may be taken of, the best first."""
        candidates: list[Candidate] = []
        for name, table in self.tables.items():
            if within is not None and name != within:
                continue
            row_score = self._table_score(table)
            share = _DEPRECATED if table.of("deprecation") else 1.0
            if self.asked.figure in ("count", "share"):
                candidates.append(Candidate(name, "", None, share * row_score))
            for column in self.columns(table):
                counted = self.asked.figure != "count" or any(
                    self.positions(phrase) for phrase in self.column_phrases(table, column)
                )
                if counted and self._is_measure(table, column):
                    score = self._column_score(table, column)
                    if score > 0:
                        total = score + 0.5 * row_score + self._tax(table, column)
                        share_of = 0.8 if self.asked.figure == "count" else 1.0
                        candidates.append(Candidate(name, column, None, share * share_of * total))
            for metric in table.of("metric"):
                score = self._metric_score(metric)
                if score > 0 and self.asked.figure in ("sum", "count"):
                    counts = "count" in metric.claim["expression"]
                    if self.asked.figure == "sum" or counts:
                        total = 1.1 * score + 0.25 * row_score
                        candidates.append(Candidate(name, "", metric, share * total))
        candidates = [candidate for candidate in candidates if self._fits_nouns(candidate)]
        best = sorted(candidates, key=lambda candidate: -candidate.score)[:_TRIED]
        return sorted(best, key=lambda candidate: -candidate.score - self._reach(candidate.table))

    def _fits_nouns(self, candidate: Candidate) -> bool:
        """Whether at least half of the words of the question's subject are names of it."""
        if not self.asked.nouns:
            return True
        table = self.tables[candidate.table]
        names = list(self._table_phrases(table))
        if candidate.column:
            names += self.column_phrases(table, candidate.column)
            names += [(word,) for unit in table.of("unit", column=candidate.column)
                      for word in words(f"{unit.claim['unit']} {unit.claim['per']}")]  # fmt: skip
        if candidate.metric is not None:
            names += [tuple(words(name)) for name in candidate.metric.claim["names"]]
        names += [phrase for _, _, _, phrase in self._code_names(table)]
        names += [tuple(words(name)) for fact in table.of("filter") for name in fact.claim["names"]]
        names.append(tuple(words(candidate.table.partition(".")[0])))
        shown = table.columns.get(candidate.column)
        bag = set(
            words(" ".join([table.comment, shown.doc if shown else "", *self._descriptions(table)]))
        )
        name_words = {word for phrase in names for word in phrase}
        fits = 0.0
        for noun in self.asked.nouns:
            if noun in name_words:
                fits += 1.0
            elif noun in bag or any(abbreviates(word, noun) for word in name_words):
                fits += 0.6
        return fits / len(self.asked.nouns) >= _LEAST_FIT

    def _reach(self, name: str) -> float:
        """What the codes are worth that the question names, of the table and of what it joins."""
        weights: dict[int, float] = {}
        reached = {name} | {other for table, other, _ in self.edges() if table == name}
        reached |= {other for table, other, _ in self.edges() if table in reached}
        for other in reached:
            for _, _, _, phrase in self._code_names(self.tables[other]):
                for at in self.positions(phrase):
                    weights[at] = self._rarity(self.asked.stems[at])
        return sum(weights.values())

    def conditions(
        self, table: str, taken: Iterable[int], names: Iterable[int] = ()
    ) -> list[Condition]:
        """Codes of a table that the question names, by words that are not taken yet.

        `names`: positions of words that are no code when they stand alone.
        """
        used = set(taken)
        conditions: list[Condition] = []
        for length, fact, code, at in sorted(self._named_codes(table), key=lambda named: -named[0]):
            included = {self.asked.stems[place] for place in at} & self.asked.included
            alone = length == 1 and at[0] in set(names)
            if length and not alone and not included and not used & set(at):
                conditions.append(Condition(table, fact.column, code, self._negated(at[0]), at))
                used |= set(at)
        return conditions

    def filters(self, table: str) -> list[Fact]:
        """Conditions of a table that hold always, or that the question names."""
        filters = []
        for fact in self.tables[table].of("filter"):
            named = any(self.positions(tuple(words(name))) for name in fact.claim["names"])
            if named or (fact.claim["mandatory"] and not self._wanted(fact)):
                filters.append(fact)
        return filters

    def edges(self) -> list[Edge]:
        """Joins: those that are said, or else those of equal names that look like keys."""
        stated = [
            (table.name, fact.claim["to"], fact)
            for table in self.tables.values()
            for fact in table.of("join")
            if fact.claim["to"] in self.tables and fact.claim["to"] != table.name
        ]
        joined = {frozenset(edge[:2]) for edge in stated}
        guessed = []
        for table in self.tables.values():
            for other in self.tables.values():
                if table is other or frozenset((table.name, other.name)) in joined:
                    continue
                for column in other.columns:
                    keys = [fact.claim["key"] for fact in other.of("grain")]
                    first = [column] in keys if keys else next(iter(other.columns)) == column
                    if column in table.columns and _KEY.search(column) and first:
                        claim = {"pairs": [(column, column)], "to": other.name, "where": "",
                                 "cardinality": "many_to_one", "role": ""}  # fmt: skip
                        fact = Fact("join", table.name, "", claim, bad=False)
                        guessed.append((table.name, other.name, fact))
        return stated + guessed

    def path(self, start: str, goal: str, most: int = 3, *, up: bool = False) -> list[Edge] | None:
        """The shortest chain of joins; of equal ones that whose role the question names.

        `up`: only from many rows to the one that they belong to.
        """
        ways: list[list[Edge]] = [[]]
        seen = {start}
        for _ in range(most):
            longer: list[list[Edge]] = []
            for way in ways:
                at = way[-1][1] if way else start
                for table, other, fact in self._ranked_edges():
                    for here, there in ((table, other), (other, table)):
                        down = here != table or fact.claim["cardinality"] not in _UP
                        if here != at or there in seen or (up and down):
                            continue
                        new = [*way, (here, there, fact)]
                        if there == goal:
                            return new
                        longer.append(new)
            seen |= {way[-1][1] for way in longer}
            ways = longer
        return None

    def columns(self, table: ReadTable) -> list[str]:
        """Columns that the text names, in cells or in facts."""
        described = [fact.column for fact in table.facts if fact.column]
        return list(dict.fromkeys([*table.columns, *described]))

    def column_phrases(self, table: ReadTable, column: str) -> list[Phrase]:
        """Names of a column."""
        parts = column.replace(".", " ").replace("_", " ").split()
        texts = [" ".join(_COMMON.get(part, part) for part in parts)]
        for fact in table.of("description", "synonyms", column=column):
            texts += [fact.claim["label"]] if fact.kind == "description" else fact.claim["names"]
        return [phrase for phrase in (tuple(words(text)) for text in texts) if phrase]

    def column_match(self, table: ReadTable, column: str, words_near: Sequence[str]) -> float:
        """How many of some stems the names of a column have."""
        best = 0.0
        for phrase in self.column_phrases(table, column):
            hits = sum(
                1.0
                if word in words_near
                else 0.7 * any(abbreviates(word, other) for other in words_near)
                for word in phrase
            )
            best = max(best, hits / len(phrase) ** 0.5)
        return best

    def positions(self, phrase: Phrase) -> tuple[int, ...]:
        """Where the words of a phrase stand in the question one after another."""
        stems, length = self.asked.stems, len(phrase)
        for at in range(len(stems) - length + 1):
            if length and stems[at : at + length] == phrase:
                return tuple(range(at, at + length))
        return ()

    def name_positions(self, table: str, column: str = "") -> set[int]:
        """Positions of words that name a table or a column."""
        phrases = self._table_phrases(self.tables[table])
        phrases += self.column_phrases(self.tables[table], column) if column else []
        return {at for phrase in phrases for at in self.positions(phrase)}

    def _ranked_edges(self) -> Iterator[Edge]:
        stems = set(self.asked.stems)
        return iter(
            sorted(self.edges(), key=lambda edge: -len(stems & set(words(edge[2].claim["role"]))))
        )

    def _named_codes(self, table: str) -> Iterator[tuple[int, Fact, str, tuple[int, ...]]]:
        for fact, code, _, phrase in self._code_names(self.tables[table]):
            at = self.positions(phrase)
            yield len(at), fact, code, at

    @staticmethod
    def _code_names(table: ReadTable) -> Iterator[tuple[Fact, str, str, Phrase]]:
        for fact in table.of("codes"):
            for code, labels in fact.claim["values"].items():
                for label in labels:
                    yield fact, code, label, tuple(words(label))

    def _negated(self, at: int) -> bool:
        """Whether one of the words before it in the same clause leaves it out."""
        stems = self.asked.stems
        text = self.asked.text
        place = -1
        for _ in range(stems[: at + 1].count(stems[at])):
            place = text.find(stems[at], place + 1)
        before = re.findall(r"[a-z]+", re.split(r"[,;()]", text[: max(place, 0)])[-1])[-5:]
        after = re.match(_LEFT_OUT, text[max(place, 0) :])
        return after is not None or bool(set(before) & _NEGATED)

    def _wanted(self, fact: Fact) -> bool:
        """Whether the question includes by name what a filter leaves out."""
        fact_words = set(words(f"{' '.join(fact.claim['names'])} {fact.claim['text']}"))
        return self.asked.everything or bool(self.asked.included & fact_words)

    def _is_measure(self, table: ReadTable, column: str) -> bool:
        shown = table.columns.get(column)
        if shown is not None and not _NUMERIC.match(shown.kind):
            return False
        if shown is None and not table.of("unit", "validity", column=column):
            return False
        times = ("utc", "yyyymm", "month")
        for unit in table.of("unit", column=column):
            if unit.claim["unit"].lower() in times or "/" in unit.claim["unit"]:
                return False
        keys = {key for fact in table.of("grain") for key in fact.claim["key"]}
        joined = {column for fact in table.of("join") for column, _ in fact.claim["pairs"]}
        coded = {fact.column for fact in table.of("codes") if fact.claim["complete"]}
        coded -= {fact.column for fact in table.of("unit", "validity")}
        return not (_KEY.search(column) or column in keys | joined | coded)

    def _tax(self, table: ReadTable, column: str) -> float:
        taxes = {fact.claim["tax"] for fact in table.of("unit", column=column)} - {""}
        wants = "gross" if self.asked.has("gross", "tax included", "with (?:vat|tax)") else ""
        wants = wants or ("net" if self.asked.has("net", "without (?:vat|tax)") else "")
        return 0.0 if not taxes or not wants else (0.8 if wants in taxes else -0.8)

    def _rarity(self, word: str) -> float:
        return math.log(1 + (len(self.tables) + 1) / (self._df.get(word, 0) + 0.5))

    def _weight(self, word: str) -> float:
        nouns = self.asked.nouns
        if nouns and word == nouns[-1]:
            return 3.0
        return 2.0 if word in nouns else 0.8

    def _phrase_score(self, phrase: Phrase, *, physical: bool = False) -> float:
        total = 0.0
        for word in phrase:
            if word in self.asked.stems:
                total += self._weight(word) * self._rarity(word)
                continue
            matches = [other for other in self.asked.stems if physical and abbreviates(word, other)]
            if matches:
                total += 0.6 * max(map(self._weight, matches)) * self._rarity(word)
            else:
                total -= _MISSING * (0.5 if physical else 1.0) * self._rarity(word)
        return max(total, 0.0) / len(phrase) ** 0.3

    def _table_score(self, table: ReadTable) -> float:
        phrases = self._table_phrases(table)
        best = max(
            [self._phrase_score(phrase, physical=at == 0) for at, phrase in enumerate(phrases)],
            default=0.0,
        )
        labels = [phrase for _, _, _, phrase in self._code_names(table)]
        best = max([best, *(0.7 * self._phrase_score(label) for label in labels if label)])
        room = table.name.partition(".")[0]
        bag = set(words(" ".join([room, table.comment, *self._descriptions(table)])))
        common = sum(self._weight(w) * self._rarity(w) for w in bag & set(self.asked.stems))
        return best + _BAG * common

    def _column_score(self, table: ReadTable, column: str) -> float:
        phrases = self.column_phrases(table, column)
        best = max(
            [self._phrase_score(phrase, physical=at == 0) for at, phrase in enumerate(phrases)],
            default=0.0,
        )
        shown = table.columns.get(column)
        bag = set(words(shown.doc if shown else ""))
        for fact in table.of("unit", column=column):
            bag |= set(words(fact.claim["unit"]))
            if fact.claim["tax"] and _WORTH & set(self.asked.stems):
                best += 1.0
        common = sum(self._weight(w) * self._rarity(w) for w in bag & set(self.asked.stems))
        return best + _BAG * common

    def _metric_score(self, metric: Fact) -> float:
        return max((self._phrase_score(tuple(words(name))) for name in metric.claim["names"]),
                   default=0.0)  # fmt: skip

    @staticmethod
    def _descriptions(table: ReadTable) -> list[str]:
        texts = [fact.claim["text"] for fact in table.of("description", column="")]
        return [text for parts in texts for text in parts]

    @staticmethod
    def _table_phrases(table: ReadTable) -> list[Phrase]:
        texts = [table.name.rpartition(".")[2].replace("_", " ")]
        for fact in table.of("description", "synonyms", "grain", column=""):
            if fact.kind == "description":
                texts.append(fact.claim["label"])
            elif fact.kind == "grain":
                texts.append(fact.claim["entity"])
            else:
                texts += fact.claim["names"]
        return [phrase for phrase in (tuple(words(text)) for text in texts) if phrase]
