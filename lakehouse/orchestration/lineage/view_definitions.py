"""Views of the catalog as definitions of tables: what their SELECTs read, through other views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from lakehouse.errors import InvalidViewError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.materialized_view import MaterializedView
from lakehouse.spec.views.view_metadata import STORAGE_TABLE
from lakehouse.view import CATALOG_NAME, SPARK


def with_views(lake: Lakehouse, derived: Iterable[DerivedTable]) -> dict[str, DerivedTable]:
    """Definitions by table: those of a checkout, and of the catalog's materialized views."""
    definitions = {definition.name: definition for definition in derived}
    for name in lake.list_views():
        if STORAGE_TABLE in lake.load_view(name).properties:
            view = MaterializedView(lake, name)
            definitions.setdefault(view.storage, view.definition())
    return definitions


def plain_view(lake: Lakehouse, name: str) -> DerivedTable | None:
    """A view without rows of its own, as if it were a table; None: it is none.

    Raises:
        InvalidViewError: its SELECT cannot be read, or reads itself or another catalog.
        InvalidInputError: its SELECT cannot be computed here.
    """
    if lake.table_exists(name) or not lake.view_exists(name):
        return None
    if STORAGE_TABLE in lake.load_view(name).properties:
        return None
    sql = _expanded(lake, name, ()).sql(dialect=SPARK)
    return SqlModel(name=name, sql=sql, engine="duckdb").table()


def _expanded(lake: Lakehouse, name: str, above: tuple[str, ...]) -> exp.Expr:
    """A view's SELECT over tables alone, each with its namespace."""
    if name in above:
        raise InvalidViewError(f"{name} reads itself", view=name)
    view = lake.load_view(name)
    version = view.metadata.current_version()
    catalogs = {lake.name, version.summary.get(CATALOG_NAME, lake.name)}
    if version.default_catalog not in (None, *catalogs):
        raise InvalidViewError(f"{name} reads catalog {version.default_catalog}", view=name)
    try:
        tree = parse_one(view.sql(SPARK), dialect=SPARK)
    except SqlglotError as error:
        raise InvalidViewError(f"{name}: {str(error).splitlines()[0]}", view=name) from error
    for column in tree.find_all(exp.Column):
        column.set("db", None)  # tables get aliases
        column.set("catalog", None)
    within = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        parts = [part.name for part in table.parts]
        if len(parts) == 1 and parts[0] in within:
            continue
        if len(parts) > 2 and parts[0] in catalogs:
            parts = parts[1:]
        full = ".".join(parts if len(parts) > 1 else [*version.default_namespace, *parts])
        alias = table.alias or parts[-1]
        if not lake.table_exists(full) and lake.view_exists(full):
            read = lake.load_view(full).properties
            if STORAGE_TABLE in read:
                full = read[STORAGE_TABLE]
            else:
                inner = _expanded(lake, full, (*above, name))
                named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
                table.replace(exp.Subquery(this=inner, alias=named))
                continue
        table.replace(exp.to_table(full, dialect=SPARK, alias=alias))
    return tree


def storage_of(lake: Lakehouse, name: str) -> str:
    """The table with the rows of a materialized view; the name itself if it is none."""
    if lake.table_exists(name) or not lake.view_exists(name):
        return name
    properties: Mapping[str, str] = lake.load_view(name).properties
    return properties.get(STORAGE_TABLE, name)
