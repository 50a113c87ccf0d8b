"""SQL over tables without a JVM: DataFusion executes, our planner says which files it reads.

DataFusion gets the paths of files that any reader of Parquet reads alike, on disks of this machine;
our reader serves it the rows of all others. Where the paths lead to an error, the query is run once
more over our reader alone, whose errors name what is wrong.

Table names are replaced in the text of the query, so that DataFusion sees the query as it was
written; a view's name is replaced by its SELECT, translated where it has none for DataFusion. A
comparison of a column with a literal prunes files when the query reads that one table directly;
DataFusion filters rows in any case.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp

from lakehouse.environment import Environment
from lakehouse.errors import (
    InvalidExpressionError,
    InvalidInputError,
    InvalidViewError,
    NoSuchTableError,
)
from lakehouse.expressions.bound_filter import TRUE, Bound, conjunction
from lakehouse.expressions.filter_binding import Names, to_bound
from lakehouse.expressions.sql.dialects import for_datafusion
from lakehouse.expressions.sql.sql_terms import read_parsed
from lakehouse.inspect.metadata_tables import METADATA_TABLES
from lakehouse.lake import Lakehouse
from lakehouse.spec.identifier import dotted
from lakehouse.table import Table
from lakehouse.table.engine_scans import PATTERN, HandedOver, handed_over, numbered, unused
from lakehouse.table.scan import TableScan
from lakehouse.table.scan_dataset import ScanDataset
from lakehouse.table.times import moment_ms
from lakehouse.view import CATALOG_NAME, View

log = logging.getLogger(__name__)

_SHOWN = 5
_WHOLE, _CHANGED = "whole", "changed"
_OWN_DIALECT = "datafusion"
_VERSION_CLAUSE = re.compile(
    r"\s+(?:FOR\s+)?(?:SYSTEM_)?(VERSION|TIMESTAMP|TIME)\s+AS\s+OF\s+('(?:[^']|'')*'|\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """What names in a SELECT mean.

    Attributes:
        namespace: of names of one part; None where they need one.
        catalogs: names of this lakehouse as a catalog.
        elsewhere: another catalog, whose are the names that say no catalog.
        view: for messages.
    """

    namespace: tuple[str, ...] | None = None
    catalogs: frozenset[str] = frozenset()
    elsewhere: str | None = None
    view: str = ""

    @classmethod
    def of(cls, view: View, lake: str) -> _Place:
        """That of a view's SELECT."""
        version = view.metadata.current_version()
        catalogs = frozenset({lake, version.summary.get(CATALOG_NAME, lake)})
        default = version.default_catalog
        elsewhere = None if default in catalogs else default
        return cls(version.default_namespace, catalogs, elsewhere, view.name)

    def resolved(self, parts: list[str]) -> list[str]:
        """Namespace and name of a table. Raises InvalidViewError for one of another catalog."""
        if len(parts) > 2 and parts[0] in self.catalogs:
            return parts[1:]
        if self.elsewhere is not None:
            raise InvalidViewError(
                f"{dotted(parts)} is in catalog {self.elsewhere}, which cannot be read here.",
                view=self.view,
            )
        return [*(self.namespace or ()), *parts] if len(parts) == 1 else parts


@dataclass(frozen=True, slots=True)
class _Reading:
    """What belongs to one query.

    Attributes:
        context: executes it.
        failures: errors of reading, which the engine passes on as text alone.
        numbers: of its sources.
        numbers_rows: whether the engine can number the rows of a file (DataFusion 55).
        links: a folder of its own, for links to the files that the engine reads itself; None: it
            reads none.
        place: what names mean.
        views: that are being resolved, the outermost first.
    """

    context: Any
    failures: list[Exception]
    numbers: Iterator[int]
    numbers_rows: bool
    links: Path | None = None
    place: _Place = _Place()
    views: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryEngine:
    """Runs SELECT over a lakehouse's tables, views and metadata tables (`raw.events.files`).

    Attributes:
        lake: what queries read.
        environment: its clock is the queries'.
        exact: whether `1.5` is a decimal; a double otherwise, as for DataFusion.
    """

    lake: Lakehouse
    environment: Environment
    exact: bool = False

    def run(self, query: str) -> pa.Table:
        """Run one SELECT; returns its result.

        Raises:
            InvalidInputError: no SELECT, several statements, or an error that DataFusion reports.
            NoSuchTableError: a table `namespace.name` does not exist.
            InvalidViewError: a view's SELECT cannot be translated, reads itself or another catalog.
            NoSuchSnapshotError, NoSuchRefError: a version that does not exist.
            StorageError, NoSuchFileError, CorruptMetadataError: a file could not be read.
        """
        with tempfile.TemporaryDirectory(prefix="lakehouse-sql-") as folder:
            links = Path(folder)
            try:
                answer = self._run(query, links)
                # a listing leaves out links whose files are gone
                gone = [link for link in links.rglob("*.parquet") if not link.exists()]
                if not gone:
                    return answer
                problem = f"{gone[0].readlink()} is gone"
            except Exception as error:
                if not any(links.iterdir()):
                    raise
                problem = str(error)
        # the same query over our reader says what is wrong, and with what
        answer = self._run(query, None)
        log.warning("DataFusion could not read the files itself, our reader did: %s", problem)
        return answer

    def _run(self, query: str, links: Path | None) -> pa.Table:
        # its import takes as long as the rest of this library; who defines tables runs no query
        import datafusion  # noqa: PLC0415

        settings = {
            "datafusion.execution.time_zone": "UTC",
            "datafusion.sql_parser.parse_float_as_decimal": str(self.exact).lower(),
        }
        context = datafusion.SessionContext(datafusion.SessionConfig(settings))
        failures: list[Exception] = []
        numbers_rows = hasattr(datafusion.functions, "file_row_index")
        text = self._resolved(query, _Reading(context, failures, count(), numbers_rows, links))
        options = (
            datafusion.SQLOptions()
            .with_allow_ddl(False)
            .with_allow_dml(False)
            .with_allow_statements(False)
        )
        try:
            return context.sql_with_options(text, options).to_arrow_table()
        except Exception as error:
            if failures:
                raise failures[0] from error
            raise InvalidInputError(f"Query failed: {_message(error)}") from error

    def _resolved(self, query: str, reading: _Reading) -> str:
        """The query with names that DataFusion knows in place of tables and views."""
        tree = _parse(query)
        text = query
        names = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
        sources = [node for node in tree.find_all(exp.Table) if node.db or node.name not in names]
        for node in sorted(sources, key=_start, reverse=True):
            version, end = _version(query, node)
            parts = reading.place.resolved([part.name for part in node.parts])
            view = self._view(parts)
            if view is None:
                source = f"__source_{next(reading.numbers)}"
                self._register(reading, source, node, parts, version)
            elif version is not None:
                raise InvalidInputError(f"{view.name} is a view: it has no versions of rows.")
            else:
                source = self._select(view, reading)
            alias = "" if node.alias else f' AS "{node.name}"'
            text = text[: _start(node)] + source + alias + text[end:]
        return text

    def _view(self, parts: Sequence[str]) -> View | None:
        if len(parts) < 2 or self.lake.table_exists(tuple(parts)):
            return None
        return self.lake.load_view(tuple(parts)) if self.lake.view_exists(tuple(parts)) else None

    def _select(self, view: View, reading: _Reading) -> str:
        """A view as a subquery with its own names of columns."""
        if view.name in reading.views:
            cycle = " -> ".join((*reading.views, view.name))
            raise InvalidViewError(f"View {view.name} reads itself: {cycle}.", view=view.name)
        fields = view.schema().fields
        names = ", ".join(_quoted(field.name) for field in fields)
        shown = ", ".join(_typed(field) for field in fields)
        inside = replace(
            reading, views=(*reading.views, view.name), place=_Place.of(view, self.lake.name)
        )
        stored = view.representation(_OWN_DIALECT)
        dialect = stored.dialect.lower()
        try:
            sql = stored.sql if dialect == _OWN_DIALECT else for_datafusion(stored.sql, dialect)
            inner = self._resolved(sql, inside)
        except InvalidInputError as error:
            raise type(error)(f"View {view.name}: {error.message}", **error.context) from error
        return f"(SELECT {shown} FROM ({inner}\n) AS __view ({names}))"

    def _register(
        self,
        reading: _Reading,
        name: str,
        node: exp.Table,
        parts: Sequence[str],
        version: tuple[str, str] | None,
    ) -> None:
        if len(parts) < 2:
            raise InvalidInputError(
                f"Table {parts[0]!r} in the query has no namespace: write namespace.name. "
                f"{self._known(parts)}"
            )
        metadata_table = parts[-1] if len(parts) > 2 and parts[-1] in METADATA_TABLES else None
        identifier = tuple(
            parts[:-1] if metadata_table and not self.lake.table_exists(tuple(parts)) else parts
        )
        try:
            table = self.lake.load_table(identifier)
        except NoSuchTableError as error:
            raise NoSuchTableError(f"{error.message} {self._known(parts)}") from error
        snapshot_id = None if version is None else self._snapshot_id(table, *version)
        if len(identifier) < len(parts):
            reading.context.register_record_batches(
                name, [_batches(table.inspect.table(str(metadata_table), snapshot_id))]
            )
            return
        _register_scan(reading, name, _scan_for(node, table, snapshot_id))

    def _known(self, parts: Sequence[str]) -> str:
        """Names that may have been meant, or else some that there are."""
        names = [*self.lake.list_tables(), *self.lake.list_views()]
        if not names:
            return "The catalog holds no tables."
        wanted = ".".join(parts).lower()
        spellings = {
            form: name for name in names for form in (name.lower(), name.lower().rpartition(".")[2])
        }
        near = [
            spelling
            for word in (wanted, parts[-1].lower())
            for spelling in get_close_matches(word, spellings)
        ]
        tables = dict.fromkeys(spellings[spelling] for spelling in near)
        if tables:
            return f"Did you mean {' or '.join(list(tables)[:_SHOWN])}?"
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"Tables are {', '.join(names[:_SHOWN])}{more}."

    def _snapshot_id(self, table: Table, kind: str, value: str) -> int:
        if kind != "VERSION":
            return table.metadata.snapshot_as_of(
                moment_ms(value, self.environment.now_ms())
            ).snapshot_id
        return (
            table.metadata.snapshot(int(value)).snapshot_id
            if value.isdigit()
            else table.metadata.ref(value).snapshot_id
        )


def scanned_for(
    node: exp.Table, table: Table, snapshot_id: int | None, failures: list[Exception]
) -> ScanDataset:
    """A table for a query in which it is `node`; the query's conditions on it prune files."""
    return ScanDataset(_scan_for(node, table, snapshot_id), failures)


def _scan_for(node: exp.Table, table: Table, snapshot_id: int | None) -> TableScan:
    where = _pushdown(node, table.metadata.schema_at(snapshot_id))
    return table.scan(where, snapshot_id=snapshot_id)


def _register_scan(reading: _Reading, name: str, scan: TableScan) -> None:
    """Files that DataFusion reads itself, a dataset for the others."""
    context = reading.context
    dataset = ScanDataset(scan, reading.failures)
    parts = HandedOver((), {}, scan)
    if reading.links is not None:
        parts = handed_over(scan, filtered=True, positions=reading.numbers_rows)
    file, row = (unused(number, dataset.schema.names) for number in ("file", "row"))
    folder = None if reading.links is None else _link(parts, reading.links / name, file)
    if folder is None:
        context.register_dataset(name, dataset)
        return
    sources = []
    if parts.paths:
        context.register_parquet(f"{name}_whole", str(folder / _WHOLE), schema=dataset.schema)
        sources.append(context.table(f"{name}_whole"))
    if parts.deleted:
        changed, gone = f"{name}_changed", f"{name}_gone"
        context.register_parquet(
            changed,
            str(folder / _CHANGED),
            table_partition_cols=[(file, pa.uint64())],
            schema=dataset.schema,
        )
        context.register_record_batches(gone, [numbered(parts.deleted.values()).to_batches()])
        columns = ", ".join(map(_quoted, dataset.schema.names))
        left = (
            f"SELECT {columns} FROM (SELECT *, file_row_index() AS {row} FROM {changed}) AS live "
            f"LEFT ANTI JOIN {gone} AS gone ON live.{file} = gone.file AND live.{row} = gone.row"
        )
        sources.append(context.sql(left))
    if parts.rest is not None:
        context.register_dataset(f"{name}_rest", ScanDataset(parts.rest, reading.failures))
        sources.append(context.table(f"{name}_rest"))
    context.register_view(name, reduce(lambda source, other: source.union(other), sources))


def _link(parts: HandedOver, folder: Path, file: str) -> Path | None:
    """A folder of links to files, since DataFusion takes one path for a table; None: no links.

    Files with deletes are parted by their number, a column `file`.
    """
    if PATTERN & set(str(folder)) or not (parts.paths or parts.deleted):
        return None
    links = {
        **{folder / _WHOLE / f"{at:08}.parquet": path for at, path in enumerate(parts.paths)},
        **{
            folder / _CHANGED / f"{file}={at}" / "rows.parquet": path
            for at, path in enumerate(parts.deleted)
        },
    }
    try:
        for link, path in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    except OSError:
        return None
    return folder


def _parse(query: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(query) if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInputError(f"Not a query: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidInputError("Only one SELECT statement can be run here")
    return trees[0]


def _typed(field: NestedField) -> str:
    """A column of a view with its type, where engines divide and round in types of their own."""
    name, kind = _quoted(field.name), field.field_type
    if isinstance(kind, DecimalType):
        return f"CAST({name} AS DECIMAL({kind.precision}, {kind.scale})) AS {name}"
    if isinstance(kind, DoubleType):
        return f"CAST({name} AS DOUBLE) AS {name}"
    return name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _start(node: exp.Table) -> int:
    return int(min(part.meta["start"] for part in node.parts))


def _version(query: str, node: exp.Table) -> tuple[tuple[str, str] | None, int]:
    """((VERSION or TIMESTAMP, value), offset after the clause) of a table in the query."""
    end = max(part.meta["end"] for part in node.parts) + 1
    match = _VERSION_CLAUSE.match(query, end)
    if match is None:
        return None, end
    kind = "VERSION" if match.group(1).upper() == "VERSION" else "TIMESTAMP"
    return (kind, match.group(2).strip("'").replace("''", "'")), match.end()


def _pushdown(node: exp.Table, schema: Schema) -> Bound:
    """What prunes files: comparisons of columns and literals, joined by AND in a WHERE.

    Such a comparison is true for no null, so it may be applied before a join of any kind. In a join
    it must name its table.
    """
    select = node.find_ancestor(exp.Select)
    source = node.parent
    where = None if select is None else select.args.get("where")
    if (
        select is None
        or where is None
        or not isinstance(source, (exp.From, exp.Join))
        or source.parent is not select
    ):
        return TRUE
    alone = not select.args.get("joins") and not select.args.get("laterals")
    names = (node.alias_or_name, "") if alone else (node.alias_or_name,)
    parts = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return conjunction(_comparison(part.unnest(), names, schema) for part in parts)


_COMPARISONS = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def _comparison(condition: exp.Expr, names: tuple[str, ...], schema: Schema) -> Bound:
    """A comparison as a filter; TRUE if it is anything else, or its literal does not fit."""
    operands: list[exp.Expr]
    if isinstance(condition, _COMPARISONS):
        operands = [condition.expression]
    elif isinstance(condition, exp.Between):
        operands = [condition.args["low"], condition.args["high"]]
    elif isinstance(condition, exp.In) and condition.expressions:
        operands = list(condition.expressions)
    else:
        return TRUE
    column = condition.this
    if not isinstance(column, exp.Column) or column.table not in names:
        return TRUE
    name = column.name if column.this.args.get("quoted") else column.name.lower()
    known = {field.name: field.field_type for field in schema.fields}
    # DataFusion compares single precision with literals as doubles, a filter rounds the literal
    if name not in known or isinstance(known[name], FloatType):
        return TRUE
    if not all(_is_literal(operand, known[name]) for operand in operands):
        return TRUE
    bare = condition.copy()
    bare.set("this", exp.column(name, quoted=True))
    try:
        return to_bound(read_parsed(bare, bare.sql(), Names(schema).column))
    except InvalidExpressionError:
        return TRUE


def _is_literal(operand: exp.Expr, kind: IcebergType) -> bool:
    """A number, a text, or a text as a date or time beside a column of these."""
    if isinstance(operand, exp.Cast) and isinstance(kind, _TIMES):
        return operand.to.this in _TIME_CASTS and isinstance(operand.this, exp.Literal)
    return isinstance(operand, exp.Literal) or (
        isinstance(operand, exp.Neg) and isinstance(operand.this, exp.Literal)
    )


_TIMES = (DateType, TimestampType, TimestamptzType)
_TIME_CASTS = (exp.DType.DATE, exp.DType.TIMESTAMP)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def _message(error: Exception) -> str:
    text = str(error)
    for start in ("DataFusion error: ", "Error during planning: ", "SQL error: "):
        text = text.removeprefix(start)
    return text.splitlines()[0] if text else type(error).__name__
