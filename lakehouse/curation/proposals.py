"""Statements that data and comments suggest, with evidence, for a person to accept.

Keys, references, enumerations, missing-value codes, sums that agree between tables (and so their
units), copies of tables; from scan reports the columns that no query reads and the filters that
every query uses. Every proposal rests on data or reports. A comment that somebody wrote into a
table has no state: nothing marks it when the column that it is about has changed.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType

from lakehouse.curation.standard_fields import COMMENT
from lakehouse.curation.statement_store import NAMESPACE
from lakehouse.curation.survey import Survey
from lakehouse.maintenance.health.scan_use import scan_use
from lakehouse.semantics.claims import Kind, plain
from lakehouse.semantics.facts import OWNER
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Draft
from lakehouse.spec.schema.iceberg_types import fields_of
from lakehouse.table import Table

_MOST_KEPT = 40


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column of a snapshot.

    Attributes:
        name: of the column.
        kind: Arrow type.
        rows, nulls, distinct: counts; `distinct` leaves nulls out.
        lower, upper: smallest and largest value, None where the type has no order or there is no
            value.
        total: sum, for numbers.
        values: how often each value occurs, when there are at most 40 of them.
        different: the different values, sorted by nothing.
    """

    name: str
    kind: pa.DataType
    rows: int
    nulls: int
    distinct: int
    lower: Any
    upper: Any
    total: float | None
    values: Mapping[Any, int]
    different: pa.Array = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TableProfile:
    """A table at a snapshot, its primitive columns by name in their order."""

    table: Table
    snapshot_id: int
    rows: int
    columns: Mapping[str, ColumnProfile]

    @property
    def name(self) -> str:
        """Dotted."""
        return self.table.name


def profile(table: Table) -> TableProfile | None:
    """Read a table column by column; None for a table without data."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    names = [
        field.name for field in table.schema().fields if isinstance(field.field_type, PrimitiveType)
    ]
    columns = {}
    rows = 0
    for name in names:
        column = table.scan(select=name, snapshot_id=snapshot.snapshot_id).to_arrow().column(0)
        rows = len(column)
        columns[name] = _column(name, column)
    return TableProfile(table, snapshot.snapshot_id, rows, columns)


def _column(name: str, column: pa.ChunkedArray) -> ColumnProfile:
    present = column.drop_null()
    different = present.unique()
    ordered = not (pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type))
    ends = pc.min_max(present).as_py() if ordered and len(present) else {"min": None, "max": None}
    numeric = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
    numeric = numeric or pa.types.is_floating(column.type)
    values = {}
    if len(different) <= _MOST_KEPT:
        counted = present.value_counts().to_pylist()
        values = {pair["values"]: pair["counts"] for pair in counted}
    return ColumnProfile(
        name=name,
        kind=column.type,
        rows=len(column),
        nulls=column.null_count,
        distinct=len(different),
        lower=ends["min"],
        upper=ends["max"],
        total=float(pc.sum(present.cast(pa.float64())).as_py() or 0.0) if numeric else None,
        values=values,
        different=different,
    )


_CODES_MAX = 12
_ROWS_A_CODE = 20
_PAIR_COLUMNS = 8
_FACTORS = {1: "the same unit", 100: "hundredths", 1000: "thousandths"}
_NO_VALUE = (-1, "N/A", "n/a", "", dt.date(9999, 12, 31))
_OFTEN = 0.8
_LEAST_SCANS = 10
_LEAST_SUM = 100

Proposal = dict[str, Any]


def propose(
    profiles: Sequence[TableProfile], reports: Iterable[Mapping[str, Any]] = ()
) -> list[Draft]:
    """Proposals about the profiled tables.

    Args:
        profiles: the tables; references and sums are looked for among these.
        reports: scan reports, see `lakehouse.scan.reports.listeners`.
    """
    keys = {profile.name: single_keys(profile) for profile in profiles}
    used = list(reports)
    proposals: list[Proposal] = []
    for profile in profiles:
        proposals += _with_place(profile, _grain(profile, keys[profile.name]))
        proposals += _with_place(profile, _codes(profile))
        proposals += _with_place(profile, _references(profile, profiles, keys))
        proposals += _with_place(profile, _sums(profile, profiles))
        proposals += _with_place(profile, _copies(profile, profiles, keys))
        proposals += _with_place(profile, _use(profile, used))
    return [draft_of(plain(proposal), "proposal") for proposal in proposals]


def single_keys(profile: TableProfile) -> list[str]:
    """Columns without nulls and without repetition."""
    return [
        column.name
        for column in profile.columns.values()
        if profile.rows > 1
        and not column.nulls
        and column.distinct == profile.rows
        and _is_key_type(column)
    ]


def _with_place(profile: TableProfile, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    for proposal in proposals:
        source = f"profiled at snapshot {profile.snapshot_id}"
        yield {
            "table": profile.name,
            "author": "lakehouse semantics suggest",
            "source": source,
            **proposal,
        }


def _is_key_type(column: ColumnProfile) -> bool:
    return bool(pa.types.is_integer(column.kind) or pa.types.is_string(column.kind))


def _grain(profile: TableProfile, keys: Sequence[str]) -> Iterator[Proposal]:
    key: Sequence[str] | None = keys[:1] or None
    if key is None and profile.rows > 1:
        candidates = [
            column.name
            for column in profile.columns.values()
            if not column.nulls
            and 1 < column.distinct < profile.rows
            and (_is_key_type(column) or pa.types.is_date(column.kind))
        ][:_PAIR_COLUMNS]
        key = next(
            (
                names
                for size in (2, 3)
                for names in itertools.combinations(candidates, size)
                if _could_be_key(profile, names) and _distinct(profile, names) == profile.rows
            ),
            None,
        )
    if key is not None:
        yield {
            "kind": "grain",
            "key": list(key),
            "text": f"One row for each {' and '.join(key)}.",
            "evidence": {"check": "unique", "columns": list(key)},
        }


def _could_be_key(profile: TableProfile, names: Sequence[str]) -> bool:
    product = 1
    for name in names:
        product *= profile.columns[name].distinct
    return product >= profile.rows


def _distinct(profile: TableProfile, names: Sequence[str]) -> int:
    scan = profile.table.scan(select=list(names), snapshot_id=profile.snapshot_id)
    rows = scan.to_arrow()
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)


def _codes(profile: TableProfile) -> Iterator[Proposal]:
    for column in profile.columns.values():
        few = 1 < column.distinct <= _CODES_MAX and column.rows >= _ROWS_A_CODE * column.distinct
        if (
            few
            and column.values
            and (pa.types.is_string(column.kind) or pa.types.is_integer(column.kind))
        ):
            values = sorted(column.values, key=str)
            yield {
                "kind": "codes",
                "column": column.name,
                "values": {value: f"({column.values[value]:,} rows)" for value in values},
                "text": f"{len(values)} values occur; what they mean is not in the data.",
                "evidence": {"check": "values", "column": column.name, "allowed": values},
            }
        elif (missing := _no_value(column)) is not None:
            yield {
                "kind": "codes",
                "column": column.name,
                "values": {missing: "probably none"},
                "text": f"{missing} stands apart from the other values.",
            }


def _no_value(column: ColumnProfile) -> Any:
    """A value that means "none": -1 among numbers from 0 up, the end of the calendar, N/A."""
    for stand_in in _NO_VALUE:
        if (
            isinstance(stand_in, int)
            and column.lower == stand_in
            and pa.types.is_integer(column.kind)
        ):
            above = column.different.filter(pc.greater(column.different, stand_in))
            if len(above) and pc.min(above).as_py() >= 0:
                return stand_in
        elif stand_in == column.upper and isinstance(stand_in, dt.date):
            return stand_in
        elif isinstance(stand_in, str) and pa.types.is_string(column.kind) and column.distinct > 1:
            if pc.any(pc.equal(column.different, stand_in)).as_py():
                return stand_in
    return None


def _references(
    profile: TableProfile, profiles: Sequence[TableProfile], keys: Mapping[str, Sequence[str]]
) -> Iterator[Proposal]:
    for column in profile.columns.values():
        if column.distinct < 2 or not _is_key_type(column) or column.name in keys[profile.name][:1]:
            continue
        for other in profiles:
            for key in keys[other.name]:
                target = other.columns[key]
                if (
                    other is profile
                    or target.kind != column.kind
                    or not _alike(column, target, other)
                ):
                    continue
                left = column.different.filter(
                    pc.invert(pc.is_in(column.different, value_set=target.different))
                ).to_pylist()
                exceptions = [value for value in left if value in _NO_VALUE]
                if left and left != exceptions:
                    continue
                evidence = {
                    "check": "references",
                    "column": column.name,
                    "to": f"{other.name}.{key}",
                }
                yield {
                    "kind": "join",
                    "from": [column.name],
                    "to": [f"{other.name}.{key}"],
                    "cardinality": "one_to_one"
                    if column.distinct == column.rows
                    else "many_to_one",
                    "text": f"Every {column.name} is a {key} of {other.name}"
                    + (f", but for {exceptions[0]}." if exceptions else "."),
                    "evidence": {**evidence, **({"except": exceptions} if exceptions else {})},
                }


def _alike(column: ColumnProfile, key: ColumnProfile, other: TableProfile) -> bool:
    """Whether inclusion means anything: names share a part, or the values are telling text."""
    mine, theirs = _parts(column.name), _parts(f"{other.name.rpartition('.')[2]}_{key.name}")
    shared = any(word.startswith(two) or two.startswith(word) for word in mine for two in theirs)
    telling = pa.types.is_string(column.kind) and column.distinct >= _CODES_MAX
    return column.name == key.name or shared or telling


def _parts(name: str) -> set[str]:
    """The telling parts of a name: `customer_id` -> customer."""
    return {
        word for word in name.lower().split("_") if len(word) > 2 and word not in ("key", "code")
    }


def _sums(profile: TableProfile, profiles: Sequence[TableProfile]) -> Iterator[Proposal]:
    for column, other in itertools.product(profile.columns.values(), profiles):
        if other is profile or not column.total or _is_key_like(column):
            continue
        for target in other.columns.values():
            if not target.total or _is_key_like(target):
                continue
            for factor, what in _FACTORS.items():
                if abs(column.total - factor * target.total) > 1e-7 * abs(column.total):
                    continue
                yield {
                    "kind": "warning",
                    "column": column.name,
                    "text": f"Adds up to {other.name}.{target.name}, in {what}.",
                    "evidence": {
                        "check": "sum_equal",
                        "column": column.name,
                        "to": f"{other.name}.{target.name}",
                        "to_factor": factor,
                        "tolerance": 1e-7,
                    },
                }


def _is_key_like(column: ColumnProfile) -> bool:
    """Sums of ids and of small numbers agree by chance, or because tables are copies."""
    ids = pa.types.is_integer(column.kind) and column.distinct == column.rows
    return ids or column.distinct < 2 or abs(column.total or 0) < _LEAST_SUM


def _copies(
    profile: TableProfile, profiles: Sequence[TableProfile], keys: Mapping[str, Sequence[str]]
) -> Iterator[Proposal]:
    for other in profiles:
        shared = [key for key in keys[profile.name] if key in keys[other.name]]
        if other is profile or not shared or profile.rows > other.rows:
            continue
        common = [
            name
            for name, column in profile.columns.items()
            if name in other.columns and other.columns[name].kind == column.kind
        ]
        mine = profile.columns[shared[0]].different
        inside = pc.all(pc.is_in(mine, value_set=other.columns[shared[0]].different)).as_py()
        if inside and len(common) >= max(3, 0.6 * len(profile.columns)):
            yield {
                "kind": "warning",
                "text": f"Looks like a copy of {other.name}: every {shared[0]} is there,"
                f" {len(common)} of {len(profile.columns)} columns are the same.",
                "evidence": {
                    "check": "references",
                    "column": shared[0],
                    "to": f"{other.name}.{shared[0]}",
                },
            }


def _use(profile: TableProfile, reports: Sequence[Mapping[str, Any]]) -> Iterator[Proposal]:
    """Columns that no query reads, filters that every query uses."""
    of_table = [report for report in reports if report.get("table") == profile.name]
    if len(of_table) < _LEAST_SCANS:
        return
    read: Counter[str] = Counter()
    for statement in of_table:
        read.update(statement.get("projection") or profile.columns)
    unread = [name for name in profile.columns if not read[name]]
    if unread:
        yield {
            "kind": "warning",
            "topics": unread,
            "text": f"None of {len(of_table)} scans read {', '.join(unread)}.",
        }
    use = scan_use(of_table, profile.name, list(profile.columns))
    for predicate in use.predicates[:1]:
        if predicate.predicate != "true" and predicate.scans >= _OFTEN * len(of_table):
            yield {
                "kind": "warning",
                "text": (
                    f"{predicate.scans} of {len(of_table)} scans filter by {predicate.predicate}: "
                    "is this a filter that every figure needs?"
                ),
            }


def written_comments(seen: Survey, tables: Collection[str]) -> list[Draft]:
    """Docs of columns, comments and owners of tables that no statement says.

    What our own statements wrote there is left out, in whatever state they are.

    Args:
        seen: the lakehouse.
        tables: dotted names of the tables to look into.
    """
    texts: dict[tuple[str, str | None], list[str]] = {}
    owned = set()
    for draft in map(seen.draft, seen.statements):
        texts.setdefault((draft.table, draft.column), []).append(draft.text)
        if draft.kind is Kind.OWNER:
            owned.add(draft.table)
    drafts: list[Draft] = []
    for table in seen.tables.values():
        if table.name not in tables or table.name.startswith(f"{NAMESPACE}."):
            continue
        for column, written in _comments(table):
            if not _is_covered(written, texts.get((table.name, column), ())):
                drafts.append(_draft(table, kind="description", column=column, text=written))
        owner = table.properties.get(OWNER)
        if owner and table.name not in owned:
            drafts.append(_draft(table, kind="owner", owner=owner))
    return drafts


def _comments(table: Table) -> Iterator[tuple[str | None, str]]:
    """Column, or None for the table, and what is written about it."""
    schema = table.schema()
    if comment := table.properties.get(COMMENT, "").strip():
        yield None, comment
    for field_id in fields_of(schema):
        if doc := (schema.find_field(field_id).doc or "").strip():
            yield str(schema.find_column_name(field_id)), doc


def _is_covered(written: str, texts: Collection[str]) -> bool:
    """Whether nothing but the texts is written."""
    for text in sorted(texts, key=len, reverse=True):
        written = written.replace(text, "") if text else written
    return not written.strip()


def _draft(table: Table, **written: Any) -> Draft:
    filled = {name: value for name, value in written.items() if value is not None}
    source = f"a comment in schema {table.schema().schema_id} of the table"
    return draft_of(
        {"table": table.name, "author": "comments of the table", "source": source, **filled},
        "comment",
    )
