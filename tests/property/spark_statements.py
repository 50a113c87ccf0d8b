"""Generated statements of Spark SQL, each as it is and as what it does to a Parquet table.

The oracle is Spark: a statement that changes rows is spelled out as INSERTs into the table's next
version, so that conditions, casts, store assignment and errors are Spark's own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

TYPES = {
    "id": "BIGINT",
    "i": "INT",
    "b": "BOOLEAN",
    "f": "FLOAT",
    "d": "DOUBLE",
    "p": "DECIMAL(9, 2)",
    "s": "STRING",
    "x": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
    "st": "STRUCT<a: INT, t: STRING>",
    "arr": "ARRAY<INT>",
    "m": "MAP<STRING, INT>",
}
LITERALS = {
    "id": ["0", "1", "2", "3", "4", "5", "-7", "9007199254740993"],
    "i": ["0", "1", "2", "-1", "2147483647", "CAST(3 AS SMALLINT)"],
    "b": ["true", "false"],
    "f": ["FLOAT('0.1')", "FLOAT('NaN')", "FLOAT('-0.0')", "1.5F", "FLOAT('Infinity')", "0.5F"],
    "d": ["0.1D", "DOUBLE('NaN')", "0.0D", "-0.0D", "DOUBLE('-Infinity')", "2D"],
    "p": ["0.00BD", "1.00BD", "1.01BD", "-9.99BD", "1234567.89BD"],
    "s": ["'a_b1'", "'axb2'", "''", "'%'", "'5'", "'\u00e9'", "'\U0001f600z'", "'A_B1'", "'null'"],
    "x": ["X''", "X'00'", "X'00FF'", "X'7F'", "CAST('ab' AS BINARY)"],
    "day": ["DATE '2026-06-01'", "DATE '1969-12-31'", "DATE '1582-10-10'", "DATE '2026-03-08'"],
    "at": [
        "TIMESTAMP '2026-06-01 00:00:00'",
        "TIMESTAMP '2026-06-01 16:00:00Z'",
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
        "TIMESTAMP '2026-03-08 02:30:00'",
    ],
    "wall": [
        "TIMESTAMP_NTZ '2026-06-01 00:00:00'",
        "TIMESTAMP_NTZ '2026-03-08 02:30:00.000001'",
        "TIMESTAMP_NTZ '1900-01-01 12:00:00'",
    ],
    "st": [
        "named_struct('a', 1, 't', 'x')",
        "named_struct('a', CAST(NULL AS INT), 't', 'y')",
        "named_struct('a', 2, 't', CAST(NULL AS STRING))",
    ],
    "arr": ["array(1, 2)", "array(CAST(NULL AS INT))", "CAST(array() AS ARRAY<INT>)"],
    "m": ["map('k', 1)", "map('k', 2, 'l', CAST(NULL AS INT))"],
}
"""By column. Values that another type spells are added by `value`."""

CONDITIONS = [
    "i > 0.5", "i <= 1.5", "i = '1'", "id < '3'", "id = 9007199254740992D", "id % 2 = 1",
    "i <=> NULL",
    "f = 0.1", "f > 0.1", "f < FLOAT('NaN')", "f >= FLOAT('Infinity')", "f = -0.0", "NOT (f > 0.1)",
    "d = 0", "d <> 0.1", "d = DOUBLE('NaN')", "isnan(d)", "NOT (d <= 2)", "d BETWEEN -1 AND 1",
    "p >= 1.004", "p = 1.001", "p < 1.01", "p IN (1, 1.01)", "p > 1", "p * 2 = 2",
    "s LIKE 'a_b%'", "s LIKE 'a\\\\_b%'", "s LIKE '\\\\%'", "s NOT LIKE 'a%'", "s > 'a'", "s = ''",
    "s IN ('5', 'axb2', NULL)", "s NOT IN ('5', 'axb2')", "startswith(s, 'a')", "length(s) = 4",
    "s RLIKE '^a.b'", "upper(s) = 'A_B1'", "s <> 'null'", "contains(s, '_')", "s ILIKE 'A_B%'",
    "x = X'00'", "x > X'00'", "x < X'7F'", "b", "NOT b", "b IS NULL", "b = true", "b IS NOT TRUE",
    "day >= '2026-06-01'", "day < DATE '1970-01-01'", "day = '1582-10-10'", "year(day) = 2026",
    "at >= '2026-06-01 00:00:00'", "at < TIMESTAMP '2026-06-01 16:00:00Z'",
    "date(at) = '2026-06-01'",
    "at > '2026-03-08T02:30:00'", "hour(at) > 12", "at = day", "at < wall",
    "date_trunc('DAY', at) = at",
    "wall >= '2026-03-08 02:30:00'", "wall < DATE '2026-01-01'", "wall = at",
    "CAST(wall AS DATE) = day",
    "st.a = 1", "st.a IS NULL", "st IS NULL", "st.t > 'x'", "st IS NOT NULL", "st.a IN (1, NULL)",
    "st = named_struct('a', 1, 't', 'x')", "arr IS NULL", "size(arr) > 1", "array_contains(arr, 1)",
    "m['k'] = 1", "m IS NULL", "element_at(m, 'l') IS NULL", "i = id", "i + id > 3", "f = d",
    "s = i",
    "id IN (SELECT id FROM {0} WHERE b)", "EXISTS (SELECT 1 FROM {1} o WHERE o.id = {2}.id)",
    "id NOT IN (SELECT o.id FROM {1} o WHERE o.id > 2)", "i > (SELECT avg(i) FROM {0})",
    "id = (SELECT max(id) FROM {0})", "coalesce(i, 0) = 0", "i IS DISTINCT FROM 1", "true", "false",
    "CAST(NULL AS BOOLEAN)",
]  # fmt: skip
"""`{0}` is the table, `{1}` the other one, `{2}` what the table is called in the statement."""

RISKY = [
    "CAST(s AS INT) = 5",
    "1 / i > 0",
    "s = 1",
    "arr[1] = 2",
    "CAST(d AS INT) = 0",
    "day = s",
    "at > s",
]
"""Conditions that are errors in ANSI mode, on rows that no other condition hides from them."""

VALUES = {
    "id": ["id + 100", "i", "CAST(i AS SMALLINT)", "p", "'12'", "length(s)", "NULL", "d", "true"],
    "i": ["i * 2", "id", "i + 1", "'7'", "3000000000", "1.5BD", "NULL", "DEFAULT", "day", "f"],
    "b": ["NOT b", "i > 0", "NULL", "'true'", "1"],
    "f": ["f * 2", "d", "i", "0.1", "NULL", "p", "'NaN'", "id"],
    "d": ["d / 3", "f", "i", "id", "p", "NULL", "0.1", "1e300", "s"],
    "p": ["p + 1", "p * 1.005", "1.005", "i", "99999999.99", "d", "NULL", "id"],
    "s": ["upper(s)", "concat(s, '!')", "i", "at", "p", "d", "NULL", "st", "x", "day", "b"],
    "x": ["CAST(s AS BINARY)", "NULL", "concat(x, X'01')", "s", "i"],
    "day": ["date_add(day, 1)", "at", "wall", "NULL", "'2026-01-01'", "i"],
    "at": ["at + INTERVAL 1 DAY", "day", "wall", "NULL", "'2026-01-01 00:00:00'",
           "date_trunc('MONTH', at)"],
    "wall": ["wall + INTERVAL 1 HOUR", "at", "day", "NULL", "'2026-01-01'"],
    "st": ["named_struct('t', 'z', 'a', 7)", "named_struct('a', id, 't', s)", "NULL", "st", "s"],
    "arr": ["array(i, 9)", "array(id)", "reverse(arr)", "NULL", "array('a')"],
    "m": ["map(s, i)", "NULL", "map('k', id)", "m", "map(1, 2)"],
}  # fmt: skip


@dataclass
class Statement:
    """One statement.

    Attributes:
        text: it, about the table `{t}`.
        steps: the same as INSERTs about `{now}` and `{next}`, where the last one is empty; None
            where `text` about `{now}` is the same.
    """

    text: str
    steps: list[str] | None = None


@dataclass
class Generator:
    """Statements about a table with the columns `TYPES`, and `other` with the same columns."""

    chance: random.Random
    other: str
    any_case: bool
    columns: list[str] = field(default_factory=lambda: list(TYPES))

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
        """The column as it is or in another case."""
        return column.upper() if self.any_case and self.chance.random() < 0.3 else column

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
        return self.chance.choice(kinds)()

    def insert(self) -> Statement:
        """INSERT INTO or OVERWRITE, by position, by name, with a list of columns."""
        how = self.chance.randrange(5)
        if how == 0:
            return Statement(f"INSERT INTO {{t}} {self.rows(self.chance.randrange(1, 5))}")
        chosen = self.chance.sample(self.columns, self.chance.randrange(1, 6))
        if how == 1:
            given = ", ".join(self.value(one) for one in chosen)
            names = ", ".join(self.named(one) for one in chosen)
            if "DEFAULT" in given:
                return Statement(f"INSERT INTO {{t}} ({names}) VALUES ({given})")
            return Statement(
                f"INSERT INTO {{t}} ({names}) SELECT {given} FROM {self.other} LIMIT 3"
            )
        if how == 2:
            given = ", ".join(f"{self.literal(one)} AS {self.named(one)}" for one in chosen)
            return Statement(f"INSERT INTO {{t}} BY NAME SELECT {given}")
        if how == 3:
            where = self.about(self.condition(), "{t}", "{t}")
            return Statement(f"INSERT INTO {{t}} SELECT * FROM {{t}} WHERE {where}")
        where = self.about(self.condition(), self.other, self.other)
        query = f"SELECT * FROM {self.other} WHERE {where}"
        return Statement(f"INSERT OVERWRITE {{t}} {query}")

    def delete(self) -> Statement:
        """DELETE, with an alias or without."""
        condition = self.condition()
        alias = self.chance.choice(["", "AS q"])
        told = self.about(condition, "{t}", "q" if alias else "{t}")
        left = self.about(condition, "{now}", "q")
        return Statement(
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
        changed = self.about(condition, "{now}", "q")
        new = ", ".join(_default(sets.get(one, f"q.{one}"), one) for one in self.columns)
        return Statement(
            f"UPDATE {{t}} q SET {', '.join(told)} WHERE {self.about(condition, '{t}', 'q')}",
            [
                f"INSERT INTO {{next}} SELECT {new} FROM {{now}} q WHERE {changed}",
                "INSERT INTO {next} SELECT * FROM {now} q "
                f"WHERE NOT coalesce({changed}, false)",
            ],
        )

    def merge(self) -> Statement:
        """MERGE with clauses of all kinds; of the source each id once."""
        source = (
            "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY i, s, d, day, "
            f"at) r FROM {self.other}) WHERE r = 1)"
        )
        on = self.chance.choice(
            [
                "t.id = o.id",
                "t.id = o.id AND t.i > 0",
                "o.id = t.id AND t.day <= o.day",
                "t.id <=> o.id",
            ]
        )
        text = [f"MERGE INTO {{t}} t USING {source} o ON {on}"]
        pair = f"{{now}} t JOIN {source} o ON {on}"
        steps = self._matched(text, pair)
        steps += self._missing(text, f"{source} o LEFT ANTI JOIN {{now}} t ON {on}")
        steps += self._alone(text, f"{{now}} t LEFT ANTI JOIN {source} o ON {on}")
        if len(text) == 1:
            return self.merge()
        return Statement(" ".join(text), steps)

    def _matched(self, text: list[str], rows: str) -> list[str]:
        kept, steps = "true", []
        for _ in range(self.chance.randrange(3)):
            condition = self.chance.choice(
                ["o.i > t.i", "t.b", "o.s = t.s", "t.d > 0", "o.p IS NULL"]
            )
            text.append(f"WHEN MATCHED AND {condition} THEN")
            here = f"{kept} AND coalesce({condition}, false)"
            kept += f" AND NOT coalesce({condition}, false)"
            steps += self._changed(text, rows, here, "o")
        if self.chance.random() < 0.6:
            text.append("WHEN MATCHED THEN")
            steps += self._changed(text, rows, kept, "o")
            kept = "false"
        return [*steps, f"INSERT INTO {{next}} SELECT t.* FROM {rows} WHERE {kept}"]

    def _alone(self, text: list[str], rows: str) -> list[str]:
        kept, steps = "true", []
        if self.chance.random() < 0.4:
            condition = self.chance.choice(["t.i > 0", "t.st.a IS NULL", "t.s LIKE 'a_b%'", "true"])
            text.append(f"WHEN NOT MATCHED BY SOURCE AND {condition} THEN")
            steps += self._changed(text, rows, f"coalesce({condition}, false)", "t")
            kept = f"NOT coalesce({condition}, false)"
        return [*steps, f"INSERT INTO {{next}} SELECT t.* FROM {rows} WHERE {kept}"]

    def _changed(self, text: list[str], rows: str, where: str, source: str) -> list[str]:
        """The action of a clause about rows that are there."""
        how = self.chance.randrange(3 if source == "t" else 4)
        if how == 0:
            text.append("DELETE")
            return []
        if how == 3:
            text.append("UPDATE SET *")
            new = ", ".join(f"o.{one}" for one in self.columns)
            return [f"INSERT INTO {{next}} SELECT {new} FROM {rows} WHERE {where}"]
        sets = {}
        for one in self.chance.sample(self.columns, self.chance.randrange(1, 4)):
            given = [f"{source}.{one}", self.literal(one), f"coalesce(t.{one}, {source}.{one})"]
            sets[one] = self.chance.choice(given)
        if self.chance.random() < 0.15:
            sets["i"] = f"{source}.id"
        text.append("UPDATE SET " + ", ".join(f"{self.named(k)} = {v}" for k, v in sets.items()))
        new = ", ".join(sets.get(one, f"t.{one}") for one in self.columns)
        return [f"INSERT INTO {{next}} SELECT {new} FROM {rows} WHERE {where}"]

    def _missing(self, text: list[str], rows: str) -> list[str]:
        if self.chance.random() < 0.3:
            return []
        condition = self.chance.choice(["o.i > 0", "o.s IS NOT NULL", "true"])
        text.append(f"WHEN NOT MATCHED AND {condition} THEN")
        if self.chance.random() < 0.5:
            text.append("INSERT *")
            given = {one: f"o.{one}" for one in self.columns}
        else:
            chosen = self.chance.sample(self.columns, 4)
            given = {one: self.chance.choice([f"o.{one}", self.literal(one)]) for one in chosen}
            names = ", ".join(self.named(one) for one in given)
            text.append(f"INSERT ({names}) VALUES ({', '.join(given.values())})")
        names = ", ".join(given)
        values = ", ".join(given.values())
        return [f"INSERT INTO {{next}} ({names}) SELECT {values} FROM {rows} WHERE {condition}"]

    def about(self, condition: str, table: str, alias: str) -> str:
        """The condition with its places filled in."""
        return condition.replace("{0}", table).replace("{1}", self.other).replace("{2}", alias)


def _default(value: str, column: str) -> str:
    return "CAST(NULL AS INT)" if value == "DEFAULT" else value
