"""A derived table as one SELECT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import sqlglot
from pyspark.sql import DataFrame
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration.derived.derived_table import DerivedTable


@dataclass(frozen=True, kw_only=True)
class SqlModel:
    """A table that is computed from others by a SELECT of Spark SQL.

    Its inputs are the tables that the query names, `namespace.name`. Like every `DerivedTable` it
    is computed from exact snapshots, checked before it is published, and replayed.

    >>> from lakehouse.orchestration import SqlModel
    >>> query = "SELECT user_id, count(*) AS clicks FROM raw.clicks GROUP BY user_id"
    >>> SqlModel(name="marts.users", sql=query).table().inputs
    ('raw.clicks',)

    Attributes:
        name: dotted name; also the asset's key.
        sql: the query.
        day_column: for a daily table the output column that tells the day: each day is computed
            from that day of the inputs. None: the whole table is one unit.
        day_is_date: whether that column is a date; else it is a timestamptz.
        partition_by: partition terms of the table.
        sort_by: sort terms of the table.
        description: for people.
        fresh_within: the table is late when it was not computed for so long; None: never.
        owners: e-mail addresses, or teams as `team:name`.
        tags: of the asset.
    """

    name: str
    sql: str
    day_column: str | None = None
    day_is_date: bool = False
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    description: str = ""
    fresh_within: timedelta | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> DerivedTable:
        """The derived table.

        Raises:
            InvalidInputError: the text is no SELECT, or names no table.
        """
        query, inputs = self._query()
        prefix = self.name.replace(".", "__")

        def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
            session = next(iter(frames.values())).sparkSession
            views = {name: _view(prefix, name) for name in frames}
            for name, frame in frames.items():
                frame.createOrReplaceTempView(views[name])
            try:  # the plan that `sql` makes holds the frames, not the names
                return session.sql(query)
            finally:
                for view in views.values():
                    session.catalog.dropTempView(view)

        return DerivedTable(
            name=self.name,
            inputs=inputs,
            transform=transform,
            day_column=self.day_column,
            day_is_date=self.day_is_date,
            partition_by=self.partition_by,
            sort_by=self.sort_by,
            description=self.description or f"```sql\n{self.sql.strip()}\n```",
            fresh_within=self.fresh_within,
            owners=self.owners,
            tags=self.tags,
        )

    def _query(self) -> tuple[str, tuple[str, ...]]:
        """The query over views, and the tables that it names."""
        try:
            tree = sqlglot.parse_one(self.sql, read="spark")
        except SqlglotError as error:
            raise InvalidInputError(f"the SQL of {self.name} does not parse: {error}") from error
        if not isinstance(tree, exp.Query):
            raise InvalidInputError(f"the SQL of {self.name} is no SELECT")
        prefix, inputs = self.name.replace(".", "__"), []
        for table in list(tree.find_all(exp.Table)):
            if not table.db:
                continue  # a common table expression
            name = ".".join(part.name for part in table.parts)
            inputs.append(name)
            alias = table.alias or table.name
            table.set("this", exp.to_identifier(_view(prefix, name)))
            table.set("db", None)
            table.set("catalog", None)
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        if not inputs:
            raise InvalidInputError(f"the SQL of {self.name} names no table, namespace.name")
        return tree.sql(dialect="spark"), tuple(dict.fromkeys(inputs))


def _view(prefix: str, table: str) -> str:
    return f"{prefix}__from__{table.replace('.', '__')}"
