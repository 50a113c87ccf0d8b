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
_WORTH = {stem(one) for one in ("worth", "value", "amount", "money", "total")}
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
            known = {word for phrase in self._table_phrases(table) for word in phrase}
            for column in self.columns(table):
                known |= {word for one in self.column_phrases(table, column) for word in one}
            for word in known:
                self._df[word] = self._df.get(word, 0) + 1

    def absent(self) -> Fact | None:
        """What the text says is in no table, if the question asks for it."""
        for table in self.tables.values():
            for fact in table.of("absence"):
                phrases = [tuple(words(one)) for one in fact.claim["names"]]
                for phrase in phrases:
                    asked_for = len(phrase) > 1 or set(phrase) & set(self.asked.nouns)
                    if asked_for and self.positions(phrase):
                        return fact
        return None

    def measures(self, within: str | None = None) -> list[Candidate]:
        """What the figure may be taken of, the best first."""
        found: list[Candidate] = []
        for name, table in self.tables.items():
            if within is not None and name != within:
                continue
            row_score = self._table_score(table)
            share = _DEPRECATED if table.of("deprecation") else 1.0
            if self.asked.figure in ("count", "share"):
                found.append(Candidate(name, "", None, share * row_score))
            for column in self.columns(table):
                counted = self.asked.figure != "count" or any(
                    self.positions(one) for one in self.column_phrases(table, column)
                )
                if counted and self._is_measure(table, column):
                    score = self._column_score(table, column)
                    if score > 0:
                        total = score + 0.5 * row_score + self._tax(table, column)
                        share_of = 0.8 if self.asked.figure == "count" else 1.0
                        found.append(Candidate(name, column, None, share * share_of * total))
            for metric in table.of("metric"):
                score = self._metric_score(metric)
                if score > 0 and self.asked.figure in ("sum", "count"):
                    counts = "count" in metric.claim["expression"]
                    if self.asked.figure == "sum" or counts:
                        total = 1.1 * score + 0.25 * row_score
                        found.append(Candidate(name, "", metric, share * total))
        found = [one for one in found if self._fits_nouns(one)]
        best = sorted(found, key=lambda one: -one.score)[:_TRIED]
        return sorted(best, key=lambda one: -one.score - self._reach(one.table))

    def _fits_nouns(self, one: Candidate) -> bool:
        """Whether at least half of the words for what is asked for are names of it."""
        if not self.asked.nouns:
            return True
        table = self.tables[one.table]
        names = list(self._table_phrases(table))
        if one.column:
            names += self.column_phrases(table, one.column)
            names += [(word,) for unit in table.of("unit", column=one.column)
                      for word in words(f"{unit.claim['unit']} {unit.claim['per']}")]  # fmt: skip
        if one.metric is not None:
            names += [tuple(words(name)) for name in one.metric.claim["names"]]
        names += [phrase for _, _, _, phrase in self._code_names(table)]
        names += [tuple(words(name)) for fact in table.of("filter") for name in fact.claim["names"]]
        names.append(tuple(words(one.table.partition(".")[0])))
        shown = table.columns.get(one.column)
        bag = set(words(" ".join([table.comment, shown.doc if shown else "", *self._said(table)])))
        known = {word for phrase in names for word in phrase}
        fits = 0.0
        for noun in self.asked.nouns:
            if noun in known:
                fits += 1.0
            elif noun in bag or any(abbreviates(word, noun) for word in known):
                fits += 0.6
        return fits / len(self.asked.nouns) >= _LEAST_FIT

    def _reach(self, name: str) -> float:
        """What the codes are worth that the question names, of the table and of what it joins."""
        found: dict[int, float] = {}
        near = {name} | {other for one, other, _ in self.edges() if one == name}
        near |= {other for one, other, _ in self.edges() if one in near}
        for other in near:
            for _, _, _, phrase in self._code_names(self.tables[other]):
                for at in self.positions(phrase):
                    found[at] = self._rarity(self.asked.stems[at])
        return sum(found.values())

    def conditions(
        self, table: str, taken: Iterable[int], names: Iterable[int] = ()
    ) -> list[Condition]:
        """Codes of a table that the question names, by words that are not taken yet.

        `names`: positions of words that are no code when they stand alone.
        """
        used = set(taken)
        found: list[Condition] = []
        for length, fact, code, at in sorted(self._named_codes(table), key=lambda one: -one[0]):
            included = {self.asked.stems[one] for one in at} & self.asked.included
            alone = length == 1 and at[0] in set(names)
            if length and not alone and not included and not used & set(at):
                found.append(Condition(table, fact.column, code, self._negated(at[0]), at))
                used |= set(at)
        return found

    def filters(self, table: str) -> list[Fact]:
        """Conditions of a table that hold always, or that the question names."""
        found = []
        for fact in self.tables[table].of("filter"):
            named = any(self.positions(tuple(words(one))) for one in fact.claim["names"])
            if named or (fact.claim["mandatory"] and not self._wanted(fact)):
                found.append(fact)
        return found

    def edges(self) -> list[Edge]:
        """Joins: those that are said, or else those of equal names that look like keys."""
        said = [
            (table.name, fact.claim["to"], fact)
            for table in self.tables.values()
            for fact in table.of("join")
            if fact.claim["to"] in self.tables and fact.claim["to"] != table.name
        ]
        known = {frozenset(one[:2]) for one in said}
        guessed = []
        for one in self.tables.values():
            for other in self.tables.values():
                if one is other or frozenset((one.name, other.name)) in known:
                    continue
                for column in other.columns:
                    keys = [fact.claim["key"] for fact in other.of("grain")]
                    first = [column] in keys if keys else next(iter(other.columns)) == column
                    if column in one.columns and _KEY.search(column) and first:
                        claim = {"pairs": [(column, column)], "to": other.name, "where": "",
                                 "cardinality": "many_to_one", "role": ""}  # fmt: skip
                        fact = Fact("join", one.name, "", claim, bad=False)
                        guessed.append((one.name, other.name, fact))
        return said + guessed

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
                for one, other, fact in self._ranked_edges():
                    for here, there in ((one, other), (other, one)):
                        down = here != one or fact.claim["cardinality"] not in _UP
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
        said = [one.column for one in table.facts if one.column]
        return list(dict.fromkeys([*table.columns, *said]))

    def column_phrases(self, table: ReadTable, column: str) -> list[Phrase]:
        """Names of a column."""
        parts = column.replace(".", " ").replace("_", " ").split()
        texts = [" ".join(_COMMON.get(one, one) for one in parts)]
        for fact in table.of("description", "synonyms", column=column):
            texts += [fact.claim["label"]] if fact.kind == "description" else fact.claim["names"]
        return [phrase for phrase in (tuple(words(one)) for one in texts) if phrase]

    def column_match(self, table: ReadTable, column: str, near: Sequence[str]) -> float:
        """How many of some stems the names of a column have."""
        best = 0.0
        for phrase in self.column_phrases(table, column):
            hits = sum(
                1.0 if word in near else 0.7 * any(abbreviates(word, one) for one in near)
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
        known = self._table_phrases(self.tables[table])
        known += self.column_phrases(self.tables[table], column) if column else []
        return {at for phrase in known for at in self.positions(phrase)}

    def _ranked_edges(self) -> Iterator[Edge]:
        asked = set(self.asked.stems)
        return iter(
            sorted(self.edges(), key=lambda one: -len(asked & set(words(one[2].claim["role"]))))
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
        """Whether what a filter leaves out is said to be included."""
        said = set(words(f"{' '.join(fact.claim['names'])} {fact.claim['text']}"))
        return self.asked.everything or bool(self.asked.included & said)

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
        keys = {key for one in table.of("grain") for key in one.claim["key"]}
        joined = {one for fact in table.of("join") for one, _ in fact.claim["pairs"]}
        coded = {one.column for one in table.of("codes") if one.claim["complete"]}
        coded -= {one.column for one in table.of("unit", "validity")}
        return not (_KEY.search(column) or column in keys | joined | coded)

    def _tax(self, table: ReadTable, column: str) -> float:
        said = {one.claim["tax"] for one in table.of("unit", column=column)} - {""}
        wants = "gross" if self.asked.has("gross", "tax included", "with (?:vat|tax)") else ""
        wants = wants or ("net" if self.asked.has("net", "without (?:vat|tax)") else "")
        return 0.0 if not said or not wants else (0.8 if wants in said else -0.8)

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
            near = [one for one in self.asked.stems if physical and abbreviates(word, one)]
            if near:
                total += 0.6 * max(map(self._weight, near)) * self._rarity(word)
            else:
                total -= _MISSING * (0.5 if physical else 1.0) * self._rarity(word)
        return max(total, 0.0) / len(phrase) ** 0.3

    def _table_score(self, table: ReadTable) -> float:
        phrases = self._table_phrases(table)
        best = max(
            [self._phrase_score(one, physical=at == 0) for at, one in enumerate(phrases)],
            default=0.0,
        )
        labels = [phrase for _, _, _, phrase in self._code_names(table)]
        best = max([best, *(0.7 * self._phrase_score(one) for one in labels if one)])
        room = table.name.partition(".")[0]
        bag = set(words(" ".join([room, table.comment, *self._said(table)])))
        common = sum(self._weight(w) * self._rarity(w) for w in bag & set(self.asked.stems))
        return best + _BAG * common

    def _column_score(self, table: ReadTable, column: str) -> float:
        phrases = self.column_phrases(table, column)
        best = max(
            [self._phrase_score(one, physical=at == 0) for at, one in enumerate(phrases)],
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
        return max((self._phrase_score(tuple(words(one))) for one in metric.claim["names"]),
                   default=0.0)  # fmt: skip

    @staticmethod
    def _said(table: ReadTable) -> list[str]:
        texts = [one.claim["text"] for one in table.of("description", column="")]
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
        return [phrase for phrase in (tuple(words(one)) for one in texts) if phrase]
