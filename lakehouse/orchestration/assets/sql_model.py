"""A derived table as one SELECT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import sqlglot
from pyiceberg.schema import Schema
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage

from lakehouse.errors import InvalidInputError
from lakehouse.incremental_queries import DeltaPlan, Refusal, compile_deltas
from lakehouse.orchestration.assets.derived_table import ComputedTable, DerivedTable
from lakehouse.orchestration.assets.frames import EngineName, Frames, engine_name
from lakehouse.orchestration.assets.incremental import FollowedQuery
from lakehouse.orchestration.assets.portable_sql import check_portable, translated, typed
from lakehouse.spec.identifier import dotted

_GRAMMAR = {"spark": "spark", "duckdb": "duckdb", "datafusion": "postgres", "polars": "postgres"}


@dataclass(frozen=True, kw_only=True)
class SqlModel(ComputedTable):
    """A table that is computed from others by a SELECT.

    The query is Spark SQL, whatever engine runs it: other engines are given a translation, of what
    is known to mean the same there, and the types of columns are Spark's. What cannot be translated
    is written in the engine's own SQL, which its `dialect` says.

    Its inputs are the tables that the query names, `namespace.name`. Like every `DerivedTable` it
    is computed from exact snapshots, checked before it is published, and replayed.

    >>> from lakehouse.orchestration import SqlModel
    >>> query = "SELECT user_id, count(*) AS clicks FROM raw.clicks GROUP BY user_id"
    >>> SqlModel(name="marts.users", sql=query).table().inputs
    ('raw.clicks',)

    The sources of its columns are derived from the text; `columns` says those of `SELECT *`, and of
    columns without a table's name in a join.

    Attributes:
        sql: the query.
        dialect: of the query: `spark`, or the engine.
    """

    sql: str
    dialect: EngineName = "spark"

    def table(self) -> DerivedTable:
        """The derived table.

        Raises:
            InvalidInputError: the text is no SELECT, or names no table.
        """
        engine_name(self.engine, self.name)
        query = _model_query(self.name, self.sql, self.dialect, self.engine)
        attributes = {field.name: getattr(self, field.name) for field in fields(ComputedTable)}
        attributes["columns"] = query.column_sources | dict(self.columns)
        attributes["description"] = self.description or f"```sql\n{self.sql.strip()}\n```"
        return DerivedTable(
            inputs=tuple(query.views),
            transform=query.transform,
            code_version=query.words,
            query=FollowedQuery(
                views=query.views,
                compiled=query.compiled,
                text=query.text,
                tree=query.tree,
                grammar=query.grammar,
                dialect=self.dialect,
            ),
            **attributes,
        )


class _ModelQuery:
    """The SQL of a model, which many refreshes run: parsed, translated and compiled once.

    Args:
        name: of the model.
        sql: the query.
        dialect: of the query.
        engine: that runs it.

    Raises:
        InvalidInputError: the text is no SELECT, or names no table.
    """

    def __init__(self, name: str, sql: str, dialect: EngineName, engine: EngineName) -> None:
        self.name, self.sql, self.dialect, self.engine = name, sql, dialect, engine
        self.grammar = _GRAMMAR[dialect]
        self.tree, self.views = self._parsed()
        self._texts: dict[str, str] = {}
        self._plans: dict[str, DeltaPlan | Refusal] = {}

    def text(self, part: exp.Query, schemas: Mapping[str, Schema]) -> str:
        """A query over the views as the engine runs it."""
        if self.dialect == self.engine:
            return part.sql(dialect=self.grammar)
        asked = f"{part.sql()} {schemas}"
        if asked not in self._texts:
            self._texts[asked] = translated(part, schemas, self.engine, self.name)
        return self._texts[asked]

    def transform(self, frames: Frames) -> Any:
        """The query over frames of the tables."""
        if self.dialect == self.engine:
            return frames.sql(self._over(), self.views)
        schemas = {view: frames.inputs[name].schema() for name, view in self.views.items()}
        return frames.sql(self.text(self.tree, schemas), self.views)

    def compiled(self, schemas: Mapping[str, Schema]) -> DeltaPlan | Refusal:
        """How the query follows tables of these schemas."""
        asked = str(schemas)
        if asked not in self._plans:
            try:
                tree = typed(self.tree, schemas, self.name, self.grammar)
                self._plans[asked] = compile_deltas(tree, self.engine)
            except InvalidInputError as error:
                self._plans[asked] = Refusal("", error.message)
        return self._plans[asked]

    @cached_property
    def words(self) -> str:
        """The query without comments and white space, which decide nothing."""
        tokens = sqlglot.tokenize(self.sql, read=self.grammar)
        return repr((self.dialect, [(token.token_type.name, token.text) for token in tokens]))

    def _parsed(self) -> tuple[exp.Query, dict[str, str]]:
        """The query over views, and the tables that it names with their views."""
        if self.dialect not in ("spark", self.engine):
            raise InvalidInputError(
                f"the SQL of {self.name} is that of spark, which is translated, or of its engine "
                f"{self.engine}, not of {self.dialect}"
            )
        try:
            tree = sqlglot.parse_one(self.sql, read=self.grammar)
        except SqlglotError as error:
            raise InvalidInputError(f"the SQL of {self.name} does not parse: {error}") from error
        if not isinstance(tree, exp.Query):
            raise InvalidInputError(f"the SQL of {self.name} is no SELECT")
        prefix, views = self.name.replace(".", "__"), {}
        for table in _tables(tree):
            name = _dotted(table)
            views[name] = _view(prefix, name)
            alias = table.alias or table.name
            table.set("this", exp.to_identifier(views[name]))
            table.set("db", None)
            table.set("catalog", None)
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        if not views:
            raise InvalidInputError(f"the SQL of {self.name} names no table, namespace.name")
        if self.dialect != self.engine:
            check_portable(tree, self.engine, self.name)
        return tree, views

    @cached_property
    def column_sources(self) -> dict[str, list[tuple[str, str]]]:
        """Output column -> the input columns that it is computed from, as the text tells."""
        dialect = f"{self.grammar}, normalization_strategy=case_sensitive"
        try:
            outputs = lineage(None, self.sql, {}, dialect=dialect)
        except SqlglotError:
            return {}  # columns of several tables without their names: a schema would be needed
        sources = {name: _sources(node) for name, node in outputs.items()}
        return {name: pairs for name, pairs in sources.items() if pairs}

    def _over(self) -> str:
        """The text as it was written, with views in place of tables."""
        text, quote = self.sql, "`" if self.dialect == "spark" else '"'
        tables = _tables(sqlglot.parse_one(self.sql, read=self.grammar))
        for table in sorted(tables, key=lambda entry: _span(entry)[0], reverse=True):
            first, last = _span(table)
            alias = "" if table.alias else f" AS {quote}{table.name}{quote}"
            text = text[:first] + self.views[_dotted(table)] + alias + text[last + 1 :]
        return text


_model_query = lru_cache(maxsize=256)(_ModelQuery)


def _sources(output: Node) -> list[tuple[str, str]]:
    """The columns of tables at the leaves of an output column's lineage."""
    leaves = [node for node in output.walk() if not node.downstream]
    return sorted(
        {
            (_dotted(leaf.source), exp.to_column(leaf.name).name)
            for leaf in leaves
            if isinstance(leaf.source, exp.Table) and not leaf.name.endswith("*")
        }
    )


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """Without common table expressions."""
    return [table for table in tree.find_all(exp.Table) if table.db]


def _dotted(table: exp.Table) -> str:
    return dotted([part.name for part in table.parts])


def _span(table: exp.Table) -> tuple[int, int]:
    """First and last character of its name."""
    parts = table.parts
    return min(part.meta["start"] for part in parts), max(part.meta["end"] for part in parts)


def _view(prefix: str, table: str) -> str:
    return f"{prefix}__from__{table.replace('.', '__')}"
