"""Generated statements of Spark SQL, each as it is and as the INSERTs that make the rows after it.

The oracle is Spark: a statement that changes rows is spelled out as INSERTs into the table's next
version, so that conditions, casts, store assignment and errors are Spark's own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.spark_statements.vocabulary import CONDITIONS, LITERALS, REPLACED, RISKY, TYPES, VALUES

ORDER = ", ".join(f"CAST({one} AS STRING)" for one in TYPES)
FIRST_OF_EACH_ID = (
    f"(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY {ORDER}) r FROM {{0}}) "
    "WHERE r = 1)"
)


@dataclass
class Statement:
    """One statement.

    Attributes:
        kind: for the counts.
        text: it, about the table `{t}`.
        steps: the same as INSERTs about `{now}` and `{next}`, of which the last is empty before;
            None where `text` adds rows and does not read the table.
        check: a query about `{now}`; the statement fails where it does.
    """

    kind: str
    text: str
    steps: list[str] | None = None
    check: str = ""


@dataclass
class Generator:
    """Statements about a table with the columns `TYPES`, and `other` with the same columns.

    Args:
        chance: decides everything.
        other: name of the other table.
        first_of_each_id: of a table with rows of that one.
        any_case: whether names may be in another case.
        key: what the partition of a row is, as expressions about its alias `{0}`.
        identity: partition columns that are columns of the table.
        dynamic: whether INSERT OVERWRITE replaces the partitions of the new rows; None where the
            table's partitions are of several kinds and nobody overwrites them.
        defaults: of columns, as literals.
    """

    chance: random.Random
    other: str
    first_of_each_id: str
    any_case: bool
    key: Sequence[str] = ()
    identity: Sequence[str] = ()
    dynamic: bool | None = False
    defaults: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: list(TYPES))
    _misspelt: str = field(default="", init=False)

    def literal(self, column: str) -> str:
        """A literal of the column's type, or null."""
        if self.chance.random() < 0.15:
            return f"CAST(NULL AS {TYPES[column]})"
        return self.chance.choice(LITERALS[column])

    def rows(self, count: int) -> str:
        """VALUES of whole rows."""
        made = [", ".join(self.literal(one) for one in self.columns) for _ in range(count)]
        return "VALUES " + ", ".join(f"({one})" for one in made)

    def named(self, column: str) -> str:
        """The column as it is or in another case, rarely where that is an error."""
        if self.chance.random() >= (0.3 if self.any_case else 0.02):
            return column
        if not self.any_case:
            self._misspelt = column.upper()
        return column.upper()

    def value(self, column: str) -> str:
        """What a column is set to: mostly what it takes."""
        if self.chance.random() < 0.6:
            return self.literal(column)
        return self.chance.choice(VALUES[column])

    def condition(self) -> str:
        """A condition with `{0}`, `{1}` and `{2}`."""
        if self.chance.random() < 0.08:
            return self.chance.choice(RISKY)
        return self._condition(self.chance.randrange(3))

    def _condition(self, depth: int) -> str:
        if depth == 0 or self.chance.random() < 0.4:
            return self.chance.choice(CONDITIONS)
        if self.chance.random() < 0.25:
            return f"NOT ({self._condition(depth - 1)})"
        joined = self.chance.choice([" AND ", " OR "])
        return f"({self._condition(depth - 1)}{joined}{self._condition(depth - 1)})"

    def statement(self) -> Statement:
        """Any."""
        kinds = [self.insert, self.delete, self.update, self.update, self.merge, self.merge]
        self._misspelt = ""
        made = self.chance.choice(kinds)()
        if self._misspelt:
            made.check = f"SELECT {self._misspelt} FROM {{now}}"
        return made

    def insert(self) -> Statement:
        """INSERT, by position, by name, with a list of columns, or in place of other rows."""
        ways = [self._rows, self._listed, self._by_name, self._again, self._replace_where]
        if self.dynamic is not None:
            ways += [self._overwrite, self._overwrite]
            ways += [self._overwrite_partition] if self.identity else []
        return self.chance.choice(ways)()

    def _rows(self) -> Statement:
        rows = self.rows(self.chance.randrange(1, 5))
        return Statement("INSERT by position", f"INSERT INTO {{t}} {rows}")

    def _listed(self) -> Statement:
        chosen = self.some_columns(1, 6)
        given = ", ".join(self.value(one) for one in chosen)
        names = ", ".join(self.named(one) for one in chosen)
        rows = f"SELECT {given} FROM {self.other} LIMIT 3"
        if "DEFAULT" in given:
            rows = f"VALUES ({given})"
        return Statement("INSERT of columns", f"INSERT INTO {{t}} ({names}) {rows}")

    def _by_name(self) -> Statement:
        chosen = self.some_columns(1, 6)
        given = ", ".join(f"{self.literal(one)} AS {self.named(one)}" for one in chosen)
        return Statement("INSERT BY NAME", f"INSERT INTO {{t}} BY NAME SELECT {given}")

    def _again(self) -> Statement:
        condition = self.condition()
        told, new = self.about(condition, "{t}", "{t}"), self.about(condition, "{now}", "{now}")
        return Statement(
            "INSERT of itself",
            f"INSERT INTO {{t}} SELECT * FROM {{t}} WHERE {told}",
            [
                "INSERT INTO {next} SELECT * FROM {now}",
                f"INSERT INTO {{next}} SELECT * FROM {{now}} WHERE {new}",
            ],
        )

    def _replace_where(self) -> Statement:
        gone = self.chance.choice(REPLACED)
        query = (
            f"SELECT * FROM {self.other} WHERE {self.about(self.condition(), *[self.other] * 2)}"
        )
        return Statement(
            "INSERT REPLACE WHERE",
            f"INSERT INTO {{t}} REPLACE WHERE {gone} {query}",
            [
                f"INSERT INTO {{next}} SELECT * FROM {{now}} WHERE NOT coalesce({gone}, false)",
                f"INSERT INTO {{next}} {query}",
            ],
        )

    def _overwrite(self) -> Statement:
        where = self.about(self.condition(), self.other, self.other)
        query = f"SELECT * FROM {self.other} WHERE {where}"
        steps = [f"INSERT INTO {{next}} {query}"]
        if self.dynamic:
            steps = [*self._other_partitions(query), *steps]
        kind = "INSERT OVERWRITE" + (" dynamic" if self.dynamic else "")
        return Statement(kind, f"INSERT OVERWRITE {{t}} {query}", steps)

    def _overwrite_partition(self) -> Statement:
        column = self.chance.choice(list(self.identity))
        literals = [one for one in LITERALS[column] if "CAST" not in one]  # no grammar for these
        value = self.chance.choice(literals)
        rest = ", ".join(one for one in self.columns if one != column)
        where = self.about(self.condition(), self.other, self.other)
        query = f"FROM {self.other} WHERE {where}"
        names = ", ".join(self.columns)
        whole = names.replace(f" {column},", f" {value} AS {column},")
        steps = [f"INSERT INTO {{next}} SELECT {whole} {query}"]
        if self.dynamic:
            steps = [*self._other_partitions(f"SELECT {whole} {query}"), *steps]
        else:
            kept = f"NOT ({column} <=> {value})"
            steps = [f"INSERT INTO {{next}} SELECT * FROM {{now}} WHERE {kept}", *steps]
        return Statement(
            "INSERT OVERWRITE PARTITION" + (" dynamic" if self.dynamic else ""),
            f"INSERT OVERWRITE {{t}} PARTITION ({column} = {value}) SELECT {rest} {query}",
            steps,
        )

    def _other_partitions(self, query: str) -> list[str]:
        # a table without partitions is one, which a query without rows leaves as it is
        same = " AND ".join(f"{one.format('q')} <=> {one.format('o')}" for one in self.key)
        return [
            "INSERT INTO {next} SELECT * FROM {now} q "
            f"WHERE NOT EXISTS (SELECT 1 FROM ({query}) o WHERE {same or 'true'})"
        ]

    def delete(self) -> Statement:
        """DELETE, with an alias or without."""
        condition = self.condition()
        alias = self.chance.choice(["", "AS q"])
        told = self.about(condition, "{t}", "q" if alias else "{t}")
        left = self.about(condition, "{now}", "q")
        return Statement(
            "DELETE",
            f"DELETE FROM {{t}} {alias} WHERE {told}",
            [f"INSERT INTO {{next}} SELECT * FROM {{now}} q WHERE NOT coalesce({left}, false)"],
        )

    def update(self) -> Statement:
        """UPDATE of some columns or of a field of a struct."""
        condition = self.condition() if self.chance.random() < 0.9 else "true"
        sets = {
            one: self.value(one)
            for one in self.chance.sample(self.columns, self.chance.randrange(1, 4))
        }
        told = [f"{self.named(one)} = {value}" for one, value in sets.items()]
        if "st" not in sets and self.chance.random() < 0.2:
            told.append("st.a = 5")
            sets["st"] = "named_struct('a', 5, 't', st.t)"
        if "deep" not in sets and self.chance.random() < 0.2:
            told.append("deep.u.v = 7")
            sets["deep"] = "named_struct('u', named_struct('v', 7, 'l', deep.u.l), 'c', deep.c)"
        changed = self.about(condition, "{now}", "q")
        default = {one: self.defaults.get(one, "NULL") for one in self.columns}
        new = _whole_row("q", {k: default[k] if v == "DEFAULT" else v for k, v in sets.items()})
        return Statement(
            "UPDATE",
            f"UPDATE {{t}} q SET {', '.join(told)} WHERE {self.about(condition, '{t}', 'q')}",
            [
                f"INSERT INTO {{next}} BY NAME SELECT {new} FROM {{now}} q WHERE {changed}",
                "INSERT INTO {next} SELECT * FROM {now} q "
                f"WHERE NOT coalesce({changed}, false)",
            ],
        )

    def merge(self) -> Statement:
        """MERGE with clauses of all kinds; the source mostly has each id once."""
        on = self.chance.choice(
            [
                "t.id = o.id",
                "t.id = o.id AND t.i > 0",
                "o.id = t.id AND t.day <= o.day",
                "t.id <=> o.id",
                "t.id = o.id AND t.day = DATE '2026-06-01'",
            ]
        )
        rows, unique = self.other, self.first_of_each_id
        if self.chance.random() < 0.2:
            rows, unique = "{t}", FIRST_OF_EACH_ID.replace("{0}", "{t}")
        clauses: list[str] = []
        source = rows if self.chance.random() < 0.2 else unique
        steps = self._matched(clauses, f"{{now}} t JOIN {source} o ON {on}")
        check = ""
        if not clauses:
            # rows stay as they are, however many match: Spark's own rewrite would double them
            steps = [f"INSERT INTO {{next}} SELECT t.* FROM {{now}} t SEMI JOIN {source} o ON {on}"]
        elif clauses != ["WHEN MATCHED THEN", "DELETE"]:
            check = (
                "SELECT raise_error('several rows for one') FROM (SELECT count(*) "
                "FROM (SELECT *, monotonically_increasing_id() AS row FROM {now}) t "
                f"JOIN {source} o ON {on} GROUP BY t.row HAVING count(*) > 1)"
            )
        steps += self._missing(clauses, f"{source} o LEFT ANTI JOIN {{now}} t ON {on}")
        steps += self._alone(clauses, f"{{now}} t LEFT ANTI JOIN {source} o ON {on}")
        if not clauses:
            return self.merge()
        text = " ".join([f"MERGE INTO {{t}} t USING {source} o ON {on}", *clauses])
        return Statement("MERGE", text, steps, check)

    def _matched(self, text: list[str], rows: str) -> list[str]:
        conditions = ["o.i > t.i", "t.b", "o.s = t.s", "t.d > 0", "o.p IS NULL", "t.deep.c > 1"]
        kept, steps = self._clauses(text, rows, "MATCHED", conditions, "o")
        if self.chance.random() < 0.6:
            text.append("WHEN MATCHED THEN")
            return steps + self._changed(text, rows, kept, "o")
        return [*steps, f"INSERT INTO {{next}} SELECT t.* FROM {rows} WHERE {kept}"]

    def _alone(self, text: list[str], rows: str) -> list[str]:
        conditions = ["t.i > 0", "t.st.a IS NULL", "t.s LIKE 'a_b%'", "true"]
        kept, steps = self._clauses(text, rows, "NOT MATCHED BY SOURCE", conditions, "t")
        return [*steps, f"INSERT INTO {{next}} SELECT t.* FROM {rows} WHERE {kept}"]

    def _clauses(
        self, text: list[str], rows: str, when: str, conditions: list[str], source: str
    ) -> tuple[str, list[str]]:
        """Up to two clauses with conditions: which rows are left, and what becomes of others."""
        kept, steps = "true", []
        for _ in range(self.chance.choice([0, 0, 1, 1, 2])):
            condition = self.chance.choice(conditions)
            text.append(f"WHEN {when} AND {condition} THEN")
            here = f"{kept} AND coalesce({condition}, false)"
            kept += f" AND NOT coalesce({condition}, false)"
            steps += self._changed(text, rows, here, source)
        return kept, steps

    def _changed(self, text: list[str], rows: str, where: str, source: str) -> list[str]:
        """The action of a clause about rows that are there."""
        how = self.chance.randrange(3 if source == "t" else 4)
        if how == 0:
            text.append("DELETE")
            return []
        if how == 3:
            text.append("UPDATE SET *")
            new = _whole_row("o", {})
            return [f"INSERT INTO {{next}} BY NAME SELECT {new} FROM {rows} WHERE {where}"]
        sets = {}
        for one in self.chance.sample(self.columns, self.chance.randrange(1, 4)):
            given = [f"{source}.{one}", self.literal(one), f"coalesce(t.{one}, {source}.{one})"]
            sets[one] = self.chance.choice(given)
        if self.chance.random() < 0.15:
            sets["i"] = f"{source}.id"
        text.append("UPDATE SET " + ", ".join(f"{self.named(k)} = {v}" for k, v in sets.items()))
        new = _whole_row("t", sets)
        return [f"INSERT INTO {{next}} BY NAME SELECT {new} FROM {rows} WHERE {where}"]

    def _missing(self, text: list[str], rows: str) -> list[str]:
        kept, steps = "true", []
        for _ in range(self.chance.choice([0, 1, 1, 2])):
            condition = self.chance.choice(["o.i > 0", "o.s IS NOT NULL", "true"])
            text.append(f"WHEN NOT MATCHED AND {condition} THEN")
            if self.chance.random() < 0.5:
                text.append("INSERT *")
                given = {one: f"o.{one}" for one in self.columns}
            else:
                chosen = self.some_columns(1, 6)
                given = {one: self.chance.choice([f"o.{one}", self.literal(one)]) for one in chosen}
                names = ", ".join(self.named(one) for one in given)
                text.append(f"INSERT ({names}) VALUES ({', '.join(given.values())})")
            names, values = ", ".join(given), ", ".join(given.values())
            steps.append(
                f"INSERT INTO {{next}} ({names}) SELECT {values} FROM {rows} "
                f"WHERE {kept} AND coalesce({condition}, false)"
            )
            kept += f" AND NOT coalesce({condition}, false)"
        return steps

    def some_columns(self, low: int, high: int) -> list[str]:
        """At least `low` and fewer than `high` columns, in any order."""
        return self.chance.sample(self.columns, self.chance.randrange(low, high))

    def about(self, condition: str, table: str, alias: str) -> str:
        """The condition with its places filled in."""
        return condition.replace("{0}", table).replace("{1}", self.other).replace("{2}", alias)


def _whole_row(alias: str, values: dict[str, str]) -> str:
    """All columns by name: those given, the others of the alias."""
    return ", ".join(f"{values.get(one, f'{alias}.{one}')} AS {one}" for one in TYPES)
