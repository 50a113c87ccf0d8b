"""The words of generated statements: columns, literals, conditions, values."""

from __future__ import annotations

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
    "w": "DECIMAL(38, 10)",
    "tm": "TIME",
    "deep": "STRUCT<u: STRUCT<v: DECIMAL(9, 2), l: ARRAY<STRUCT<k: INT>>>, c: BIGINT>",
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
    "w": ["0BD", "-0.0000000001BD", "9999999999999999999999999999.9999999999BD", "12.5BD"],
    "tm": ["TIME '00:00:00'", "TIME '12:30:00.000001'", "TIME '23:59:59.999999'"],
    "deep": [
        "named_struct('u', named_struct('v', 1.5BD, 'l', array(named_struct('k', 1))), 'c', 1L)",
        "named_struct('u', CAST(NULL AS STRUCT<v: DECIMAL(9, 2), l: ARRAY<STRUCT<k: INT>>>), "
        "'c', 2L)",
        "named_struct('u', named_struct('v', CAST(NULL AS DECIMAL(9, 2)), 'l', "
        "CAST(array() AS ARRAY<STRUCT<k: INT>>)), 'c', CAST(NULL AS BIGINT))",
    ],
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
    "w > 0", "w = 12.5", "w < -0.00000000005", "tm >= TIME '12:30:00'", "tm = '00:00:00'",
    "deep.u.v = 1.5", "deep.u IS NULL", "deep.c > 1", "size(deep.u.l) = 0",
    "m['k'] = 1", "m IS NULL", "element_at(m, 'l') IS NULL", "i = id", "i + id > 3", "f = d",
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
    "s = i",
    "deep.u.l[0].k = 1",
]
"""Conditions that are errors in ANSI mode, on rows that no other condition hides from them.

So they stand alone. `WHERE NOT (deep.c > 1) AND deep.u.l[0].k = 1` is an error of a row whose `c`
is null where both are evaluated from left to right; as a filter Spark asks first whether `c` is
null, of a Parquet table, too, and files without another `c` are not read at all.
"""

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
    "w": ["w * 2", "p", "id", "w + p", "NULL", "'3.25'", "d"],
    "tm": ["NULL", "tm", "'10:00:00'", "at", "s"],
    "deep": ["NULL", "deep", "named_struct('c', 3, 'u', deep.u)", "st",
             "named_struct('u', named_struct('l', deep.u.l, 'v', i), 'c', i)"],
}  # fmt: skip

REPLACED = [
    "i = 1", "id >= 2 AND id < 5", "s = 'axb2'", "day < DATE '2026-01-01'", "p IN (1.00, 1.01)",
    "b", "NOT b", "i IS NULL", "id <> 3", "s LIKE 'a%'", "true", "i = 0 OR day IS NOT NULL",
    "at >= TIMESTAMP '2026-06-01 00:00:00'", "wall < TIMESTAMP_NTZ '2026-01-01 00:00:00'",
    "NOT (id > 2 AND s = '')", "x = X'00'", "w > 0BD", "id <=> NULL",
    "i IS DISTINCT FROM 1", "NOT (s <=> 'axb2')",
]  # fmt: skip
"""Conditions of REPLACE WHERE: columns and literals."""
