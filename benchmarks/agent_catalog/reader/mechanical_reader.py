"""The reader: from a question and a channel's text to SQL, or to a refusal with its reason.

Fixed rules, the same in every condition. It takes what it is told literally: it is a lower bound of
what a text is good for, and says nothing of a language model.
"""

from __future__ import annotations

import datetime as dt
import re

import sqlglot
from sqlglot import exp

from benchmarks.agent_catalog.reader.channel_text import Fact, ReadTable, read_text
from benchmarks.agent_catalog.reader.linking import Candidate, Condition, Linker
from benchmarks.agent_catalog.reader.question_grammar import CURRENCIES, Asked, Span, taken_apart
from benchmarks.agent_catalog.reader.reading import Plan, Reading, RefusedError, UnfitError
from benchmarks.agent_catalog.reader.sql_pieces import UNITS, alias, date, on_condition
from lakehouse.agents.words import abbreviates, stem, words

_LEAST_SCORE, _OTHERS = 0.8, 3
_NOTHING = re.compile(r"(no|not|none|unknown|without)\b")
_TIME = re.compile(r"date|timestamp")
_BOOKKEEPING = re.compile(r"^(vf|vt|del_|ld_|load|recv|ing_|.*_at$)")
_RATES = {"year", "yearly", "annual", "annually", "month", "monthly"}


def read_question(question: str, text: str, today: dt.date) -> Reading:
    """What a literal reader answers to a question, knowing a text and the day."""
    parsed_question = taken_apart(question, today)
    reader = _Reader(Linker(read_text(text), parsed_question), parsed_question)
    try:
        sql = reader.read()
    except RefusedError as refused:
        return Reading(None, tuple(reader.plan.tables), str(refused), tuple(reader.plan.warnings))
    return Reading(sql, tuple(reader.plan.tables), "", tuple(reader.plan.warnings))


class _Reader:
    def __init__(self, linker: Linker, question: Asked) -> None:
        self.linker = linker
        self.asked = question
        self.plan = Plan("")
        self.taken: set[int] = set()

    def read(self) -> str:
        absent = self.linker.absent()
        if absent is not None:
            raise RefusedError(f"not in the lakehouse: {absent.claim['text']}")
        first, *others = self._candidates(None)
        try:
            return self._read_of(first)
        except UnfitError as unfit:
            for candidate in others[:_OTHERS]:
                try:
                    return self._read_of(candidate)
                except UnfitError:
                    continue
            raise unfit from None

    def _read_of(self, chosen: Candidate) -> str:
        for _ in range(3):
            self.plan = Plan(chosen.table, tables={chosen.table: None})
            instead = self._instead(chosen.table)
            if instead is None:
                break
            warnings = self.plan.warnings
            chosen = self._candidates(instead)[0]
            self.plan = Plan(chosen.table, tables={chosen.table: None}, warnings=warnings)
        self._refuse_contradicted(chosen)
        self.taken = self.linker.name_positions(chosen.table, chosen.column)
        for name in chosen.metric.claim["names"] if chosen.metric is not None else ():
            self.taken |= set(self.linker.positions(tuple(words(name))))
        shares = self._conditions(chosen)
        value = self._value(chosen)
        self._span(chosen)
        self._always(chosen)
        return self._sql(chosen, value, shares)

    def _candidates(self, within: str | None) -> list[Candidate]:
        if within is not None and within not in self.linker.tables:
            raise RefusedError(f"nothing is known of {within}")
        candidates = self.linker.measures(within)
        if within is not None and not candidates and self.asked.figure in ("count", "sum"):
            return [Candidate(within, "", None, 0.0)]
        if not candidates or (within is None and candidates[0].score < _LEAST_SCORE):
            raise RefusedError("nothing in the text has that name")
        return candidates

    def _instead(self, name: str) -> str | None:
        """Another table, where this one is replaced or ends before the span."""
        table = self.linker.tables[name]
        for fact in table.of("deprecation"):
            if fact.claim.get("use"):
                return str(fact.claim["use"])
            self.plan.warnings.append(f"{name} is deprecated")
        span = self.asked.span
        for fact in table.of("freshness"):
            through = fact.claim["through"]
            if not through or span is None or dt.date.fromisoformat(through) >= span.last:
                continue
            if fact.claim["instead"]:
                return str(fact.claim["instead"])
            reason = f"{name} is complete through {through} only"
            if not self.asked.open_end:
                raise RefusedError(reason)
            self.plan.warnings.append(reason)
        return None

    def _refuse_contradicted(self, chosen: Candidate) -> None:
        table = self.linker.tables[chosen.table]
        for fact in table.facts:
            same = chosen.column and fact.column == chosen.column
            if fact.bad and same and fact.kind in ("unit", "validity"):
                raise RefusedError(f"what is said of {chosen.column} is contradicted")
            if fact.bad:
                self.plan.warnings.append(f"a {fact.kind} of {chosen.table} is contradicted")

    def _words_of_unit(self, chosen: Candidate) -> set[int]:
        """Where the question says `yearly` or `in euros` of an amount: these are no codes."""
        if not chosen.column and chosen.metric is None:
            return set()
        table = self.linker.tables[chosen.table]
        rates = any(fact.claim["per"] for fact in table.of("unit", column=chosen.column or None))
        unit_words = {stem(currency) for currency in CURRENCIES} | (_RATES if rates else set())
        return {at for at, word in enumerate(self.asked.stems) if word in unit_words}

    # -- conditions

    def _conditions(self, chosen: Candidate) -> list[str]:
        """Adds what the question names; returns the conditions that a share is of."""
        measured = bool(chosen.column) or chosen.metric is not None
        counted = {at for at in self.taken if measured or not self._is_label(chosen.table, at)}
        counted |= self._words_of_unit(chosen)
        tables = [chosen.table, *self._neighbours(chosen.table)]
        predicates: list[str] = []
        taken = counted
        for name in tables:
            others = set() if name == chosen.table else self._names_of_tables()
            codes = self.linker.conditions(name, taken, others)
            codes = [code for code in codes if not self._subtracted(chosen, code)]
            taken |= {at for code in codes for at in code.at}
            predicates += [self._reached(name, sql) for sql in self._grouped(codes)]
            taken |= self.linker.name_positions(name)
        self.taken = taken
        shares = predicates if self.asked.figure == "share" else []
        if not shares:
            self.plan.where += predicates
        if self.asked.country is not None and not self._has_label_of_country(predicates):
            self._country(tables)
        for operator, number, words_near in self.asked.compared:
            self._comparison(tables, operator, number, words_near)
        return shares

    def _subtracted(self, chosen: Candidate, condition: Condition) -> bool:
        """Whether the value takes off already what the question wants taken off."""
        if not condition.negated or condition.table != chosen.table:
            return False
        if chosen.metric is not None:
            return (
                re.search(rf"\b{condition.column}\b", chosen.metric.claim["expression"]) is not None
            )
        units = self.linker.tables[chosen.table].of("unit", column=chosen.column)
        return any(
            fact.claim["sign"] and fact.claim["sign"][0] == condition.column for fact in units
        )

    def _names_of_tables(self) -> set[int]:
        """Where the question names any table: that is no code of another one."""
        return {at for name in self.linker.tables for at in self.linker.name_positions(name)}

    def _is_label(self, table: str, at: int) -> bool:
        """Whether a word that names the table is a code's label, too: `invoice` of documents."""
        facts = self.linker.tables[table].of("codes")
        labels = {
            stem(word.lower())
            for fact in facts
            for names in fact.claim["values"].values()
            for label in names
            for word in label.split()
        }
        return self.asked.stems[at] in labels

    def _grouped(self, codes: list[Condition]) -> list[str]:
        """Codes of one column are alternatives."""
        predicates = []
        for negated in (False, True):
            columns = dict.fromkeys(code.column for code in codes if code.negated == negated)
            for column in columns:
                same = [o.code for o in codes if o.column == column and o.negated == negated]
                table = next(code.table for code in codes if code.column == column)
                place = f"{alias(table)}.{column}"
                if "null" in same:
                    predicates.append(f"{place} is {'not ' if negated else ''}null")
                    continue
                listed = ", ".join(f"'{condition}'" for condition in dict.fromkeys(same))
                predicates.append(
                    f"cast({place} as varchar) {'not ' if negated else ''}in ({listed})"
                )
        return predicates

    def _neighbours(self, name: str) -> list[str]:
        paths = {
            other: path
            for other in self.linker.tables
            if other != name and (path := self.linker.path(name, other)) is not None
        }
        return sorted(
            paths,
            key=lambda table: len(paths[table]) - 1.5 * bool(self.linker.name_positions(table)),
        )

    def _reached(self, name: str, condition: str) -> str:
        """A condition on another table, for rows of the base that lead there."""
        if name == self.plan.base:
            return condition
        path = self.linker.path(self.plan.base, name) or []
        for here, there, fact in reversed(path):
            self.plan.tables[there] = None
            extra = [
                self._qualified(fact.claim["predicate"], there)
                for fact in self.linker.filters(there)
            ]
            parts = [on_condition(here, there, fact), *extra, condition]
            if fact.claim["where"]:
                parts.insert(1, self._qualified(fact.claim["where"], fact.table))
            condition = (
                f"exists (select 1 from {there} as {alias(there)} where {' and '.join(parts)})"
            )
        return condition

    def _has_label_of_country(self, predicates: list[str]) -> bool:
        return any(f"'{self.asked.country}'" in condition for condition in predicates)

    def _country(self, tables: list[str]) -> None:
        for name in tables:
            table = self.linker.tables[name]
            for column in self.linker.columns(table):
                named = any(
                    word == "country" or abbreviates(word, "country")
                    for phrase in self.linker.column_phrases(table, column)
                    for word in phrase
                )
                if named:
                    place = f"{alias(name)}.{column} = '{self.asked.country}'"
                    self.plan.where.append(self._reached(name, place))
                    return
        raise UnfitError("no column holds a country")

    def _comparison(
        self, tables: list[str], operator: str, number: float, words_near: tuple[str, ...]
    ) -> None:
        best, place = 0.0, None
        for distance, name in enumerate(tables):
            table = self.linker.tables[name]
            for column in self.linker.columns(table):
                shown = table.columns.get(column)
                if shown is not None and not re.match(r"int|long|float|double|deci", shown.kind):
                    continue
                fits = self.linker.column_match(table, column, words_near) - 0.1 * distance
                if fits > best:
                    best, place = fits, (name, column)
        if place is None or best < 0.5:
            raise UnfitError(f"no column can be compared with {number:g}")
        name, column = place
        self.plan.where.append(self._reached(name, f"{alias(name)}.{column} {operator} {number:g}"))

    def _always(self, chosen: Candidate) -> None:
        """Conditions that hold always, of the base and of what its rows belong to."""
        for fact in self.linker.filters(chosen.table):
            self.plan.where.append(self._qualified(fact.claim["predicate"], chosen.table))
        bad = self._bad(chosen.table, 2, {chosen.table})
        self.plan.where += [f"not {predicate}" for predicate in bad]

    def _bad(self, name: str, depth: int, seen: set[str]) -> list[str]:
        """That a row leads to one that is to be left out."""
        predicates = []
        for here, there, fact in self.linker.edges():
            apart = here.partition(".")[0] != there.partition(".")[0]
            if here != name or there in seen or depth == 0 or apart:
                continue
            if fact.claim["cardinality"] not in ("many_to_one", "one_to_one"):
                continue
            broken = [
                f"not ({self._qualified(fact.claim['predicate'], there)})"
                for fact in self.linker.filters(there)
                if fact.claim["mandatory"]
            ]
            broken += self._bad(there, depth - 1, seen | {there})
            if broken:
                where = fact.claim["where"]
                on = on_condition(here, there, fact)
                on += f" and {self._qualified(where, here)}" if where else ""
                predicates.append(
                    f"exists (select 1 from {there} as {alias(there)} "
                    f"where {on} and ({' or '.join(broken)}))"
                )
        return predicates

    # -- the span

    def _span(self, chosen: Candidate) -> None:
        table = self.linker.tables[chosen.table]
        span = self.asked.span
        for grain in table.of("grain"):
            if grain.claim["snapshot"]:
                column = f"{alias(chosen.table)}.{grain.claim['snapshot']}"
                until = "" if span is None else f" where x.{grain.claim['snapshot']} <= "
                until += "" if span is None else date(span.last)
                self.plan.where.append(
                    f"{column} = (select max(x.{grain.claim['snapshot']}) "
                    f"from {chosen.table} as x{until})"
                )
                return
        if span is None:
            return
        name, column = self._time(chosen)
        self.plan.where.append(self._reached(name, self._within(name, column, span)))
        self._provisional(name, span)

    def _time(self, chosen: Candidate) -> tuple[str, str]:
        if chosen.metric is not None and chosen.metric.claim["time"]:
            written = chosen.metric.claim["time"]
            table, _, column = written.rpartition(".")
            return (table or chosen.table), column
        neighbours = self._neighbours(chosen.table)
        up = [table for table in neighbours if self.linker.path(chosen.table, table, up=True)]
        for name in (chosen.table, *up):
            columns = self._times(self.linker.tables[name])
            if columns:
                return name, columns[0]
        raise UnfitError("no column says when")

    def _times(self, table: ReadTable) -> list[str]:
        fresh = [fact.claim["column"] for fact in table.of("freshness")]
        fresh += [fact.column for fact in table.of("freshness") if fact.column]
        scores: dict[str, float] = {}
        for column in self.linker.columns(table):
            shown = table.columns.get(column)
            units = [fact.claim["unit"] for fact in table.of("unit", column=column)]
            timed = shown is not None and _TIME.match(shown.kind)
            timed = timed or any(
                unit in ("UTC", "month", "yyyymm") or "/" in unit for unit in units
            )
            if not timed:
                continue
            scores[column] = 2.0 * self.linker.column_match(table, column, self.asked.stems)
            scores[column] += 1.0 * (column in fresh) + 0.5 * bool(units)
            scores[column] -= 1.0 * bool(_BOOKKEEPING.match(column))
        return sorted(scores, key=lambda column: -scores[column])

    def _within(self, name: str, column: str, span: Span) -> str:
        table = self.linker.tables.get(name) or ReadTable(name)
        place = f"{alias(name)}.{column}"
        units = [fact.claim["unit"] for fact in table.of("unit", column=column)]
        shown = table.columns.get(column)
        if "yyyymm" in units or (shown is not None and shown.kind in ("int", "long")):
            first, last = f"{span.first:%Y%m}", f"{span.last:%Y%m}"
            return f"{place} between {first} and {last}"
        first = span.first.replace(day=1) if "month" in units else span.first
        return f"cast({place} as date) between {date(first)} and {date(span.last)}"

    def _provisional(self, name: str, span: Span) -> None:
        table = self.linker.tables.get(name) or ReadTable(name)
        for fact in table.of("freshness"):
            if fact.claim["provisional"] and fact.claim["through"]:
                number, unit = fact.claim["provisional"]
                days = number * {"day": 1, "week": 7, "month": 31}[unit]
                through = dt.date.fromisoformat(fact.claim["through"])
                if span.last > through - dt.timedelta(days=days):
                    self.plan.warnings.append(f"the last {number} {unit}s of {name} may change")

    # -- the value

    def _value(self, chosen: Candidate) -> str:
        """The expression that is aggregated; empty for a count of rows."""
        if chosen.metric is not None:
            for name in chosen.metric.claim["joins"]:
                self._join(chosen.table, name)
            if chosen.metric.claim["where"]:
                where = self._qualified(chosen.metric.claim["where"], chosen.table)
                self.plan.where.append(where)
            value = self._qualified(chosen.metric.claim["expression"], chosen.table)
            return f"{value}{self._conversion(chosen.metric.claim['unit'])}"
        if not chosen.column:
            return ""
        table = self.linker.tables[chosen.table]
        value = f"{alias(chosen.table)}.{chosen.column}"
        for fact in table.of("codes", column=chosen.column):
            for code, labels in fact.claim["values"].items():
                if any(_NOTHING.match(label) for label in labels):
                    place = f"cast({alias(chosen.table)}.{chosen.column} as varchar)"
                    self.plan.where.append(f"{place} <> '{code}'")
        for fact in table.of("validity", column=chosen.column):
            value = self._by_period(value, fact, chosen.table)
        for fact in table.of("unit", column=chosen.column):
            claim = fact.claim
            value = f"({value} * {claim['factor']:g})" if claim["factor"] else value
            if claim["sign"] and self.asked.figure == "sum":
                column, codes = claim["sign"]
                listed = ", ".join(f"'{code}'" for code in codes)
                place = f"cast({alias(chosen.table)}.{column} as varchar)"
                value = f"(case when {place} in ({listed}) then -1 else 1 end * {value})"
            if claim["currency"]:
                value = self._in_currency(value, claim, chosen.table)
            elif self.asked.currency not in (None, "EUR") and "EUR" in claim["unit"]:
                raise RefusedError(f"{chosen.column} is in euros")
            if claim["per"] == "year" and self.asked.has("monthly", "a month", "per month"):
                value = f"({value} / 12)"
            value += self._conversion(claim["unit"])
        return value

    def _by_period(self, value: str, fact: Fact, table: str) -> str:
        by = f"cast({alias(table)}.{fact.claim['by']} as date)"
        cases = [
            f"when {by} <= {date(dt.date.fromisoformat(period['until']))} then {period['factor']:g}"
            if period.get("until")
            else f"else {period['factor']:g}"
            for period in fact.claim["periods"]
            if period["factor"]
        ]
        return f"({value} * case {' '.join(cases)} end)" if len(cases) > 1 else value

    def _in_currency(self, value: str, claim: dict[str, str], base: str) -> str:
        table, _, column = claim["currency"].rpartition(".")
        currency = self.asked.currency
        if currency not in (None, "EUR"):
            place = f"{alias(table or base)}.{column} = '{currency}'"
            self.plan.where.append(self._reached(table or base, place))
            return value
        if not claim["rate"]:
            self.plan.warnings.append("adds up different currencies")
            return value
        rates, _, rate = claim["rate"].rpartition(".")
        if table and table != base:
            self._join(base, table)
        self._join(base, rates)
        return f"({value} / coalesce({alias(rates)}.{rate}, 1))"

    def _conversion(self, unit: str) -> str:
        """From the unit of the text to the one that the question names."""
        match = re.search(
            r"\b(?:in|how many) (?:(thousands?|millions?) (?:of )?)?"
            rf"({'|'.join(sorted(UNITS, key=len, reverse=True))})\b",
            self.asked.text,
        )
        if match is None:
            return ""
        scale = {"t": 1e3, "m": 1e6}.get((match.group(1) or " ")[0], 1.0)
        wanted, stored = UNITS[match.group(2)], UNITS.get(unit.lower())
        if stored is None or stored[0] != wanted[0]:
            return ""
        ratio = stored[1] / (wanted[1] * scale)
        return "" if ratio == 1 else f" * {ratio!r}"

    def _join(self, base: str, name: str) -> None:
        """Joins a table into the query, with what stands between."""
        path = self.linker.path(base, name)
        if path is None:
            raise UnfitError(f"nothing says how {base} and {name} are joined")
        for here, there, fact in path:
            if there in self.plan.joined:
                continue
            self.plan.joined.add(there)
            self.plan.tables[there] = None
            on = on_condition(here, there, fact)
            if fact.claim["where"]:
                on += f" and {self._qualified(fact.claim['where'], fact.table)}"
            self.plan.joins.append(f"left join {there} as {alias(there)} on {on}")

    # -- SQL

    def _sql(self, chosen: Candidate, value: str, shares: list[str]) -> str:
        table = self.linker.tables[chosen.table]
        grain = next(iter(table.of("grain")), None)
        source = f"{chosen.table} as {alias(chosen.table)}"
        keys = grain.claim["key"] if grain is not None and grain.claim["repeats"] else []
        if keys and (value or shares):
            source = f"(select distinct on ({', '.join(keys)}) * from {chosen.table})"
            source += f" as {alias(chosen.table)}"
        if chosen.metric is not None:
            figure = value
        elif shares:
            figure = f"100.0 * count(*) filter (where {' and '.join(shares)}) / count(*)"
        elif not value:
            counted = grain.claim["counts"] if grain is not None else None
            names = [counted] if counted else keys
            places = ", ".join(f"{alias(chosen.table)}.{name}" for name in names)
            figure = f"count(distinct ({places}))" if places else "count(*)"
        else:
            how = {"count": "sum", "share": "sum"}.get(self.asked.figure, self.asked.figure)
            figure = f"{how}({value})"
        where = " and ".join(f"({condition})" for condition in dict.fromkeys(self.plan.where))
        joins = " ".join(["", *self.plan.joins])
        return f"select {figure} from {source}{joins}" + (f" where {where}" if where else "")

    def _qualified(self, piece: str, table: str) -> str:
        """A piece of SQL over a table, its columns under the aliases of the query."""
        try:
            tree = sqlglot.parse_one(piece, read="duckdb")
        except sqlglot.errors.SqlglotError as error:
            raise RefusedError(f"cannot read {piece}") from error
        for column in list(tree.find_all(exp.Column)):
            if column.args.get("db"):
                column.set("db", None)
            elif not column.table and column.find_ancestor(exp.Select) is None:
                column.set("table", exp.to_identifier(alias(table)))
        return tree.sql("duckdb")
