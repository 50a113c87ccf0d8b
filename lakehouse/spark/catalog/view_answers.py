"""Views as Spark's catalog plugin asks for them.

A view's SELECT, its defaults and its columns are where the specification has them, the names of the
SELECT's own columns in the property in which Iceberg's Spark has them. What else Spark wants to
know of a version (settings under which it was analysed, what happens when columns change) is in the
version's summary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyspark
from pyspark.sql.types import StructType

from lakehouse.errors import AlreadyExistsError, NoSuchViewError, UnsupportedFeatureError
from lakehouse.expressions.sql.dialects import output_names
from lakehouse.lake import Lakehouse
from lakehouse.spark.jvm.answers import Arguments, Verb
from lakehouse.spark.spark_types import quoted, shown_schema, to_iceberg_schema
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.spec.metadata.table_updates import RemoveProperties, SetProperties
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.spec.views.view_updates import ViewUpdate, new_view_metadata, version_updates
from lakehouse.view import CATALOG_NAME, SPARK, View

QUERY_COLUMNS = "spark.query-column-names"
CONFIGS = "spark.sql-configs"
SCHEMA_MODE = "spark.schema-mode"
_RESERVED = frozenset({"owner", "table_type", "provider", "location"})
_DEFINITION = ("schema", "sql", "catalog", "namespace", "configs", "schema_mode", "query_columns")


class ViewAnswers:
    """Answers about the views of a lakehouse.

    Args:
        lake: the lakehouse.
        name: its name in the session.
    """

    def __init__(self, lake: Lakehouse, name: str) -> None:
        self._lake, self._name = lake, name

    def verbs(self) -> Mapping[str, Verb]:
        """What it answers."""
        return {
            "views": self.views,
            "view_exists": self.view_exists,
            "load_view": self.load_view,
            "create_view": self.create_view,
            "replace_view": self.replace_view,
            "create_or_replace_view": self.create_or_replace_view,
            "drop_view": self.drop_view,
            "rename_view": self.rename_view,
        }

    def views(self, args: Arguments, _java: object) -> list[str]:
        """Names in a namespace."""
        return [name.name for name in self._lake.catalog.views.names(tuple(args["namespace"]))]

    def view_exists(self, args: Arguments, _java: object) -> bool:
        """Whether there is one."""
        return self._lake.view_exists(_identifier(args))

    def load_view(self, args: Arguments, _java: object) -> dict[str, Any] | None:
        """What Spark has to know of a view; None where there is none."""
        view = self._find(args)
        return None if view is None else self._shown(view)

    def create_view(self, args: Arguments, _java: object) -> bool:
        """Whether the name was free."""
        identifier, environment = _identifier(args), self._lake.environment
        metadata = new_view_metadata(
            view_uuid=str(environment.new_uuid()),
            location=self._lake.catalog.default_location(identifier),
            schema=to_iceberg_schema(StructType.fromJson(json.loads(args["schema"]))),
            version=self._version(args),
            properties=_kept_properties(args),
            now_ms=environment.now_ms(),
        )
        try:
            self._lake.catalog.views.create(identifier, metadata)
        except AlreadyExistsError:
            return False
        return True

    def replace_view(self, args: Arguments, _java: object) -> bool:
        """Whether there was one."""
        view = self._find(args)
        if view is None:
            return False
        wanted = _kept_properties(args)
        gone = [key for key in view.properties if key not in wanted]
        updates: list[ViewUpdate] = [SetProperties(wanted), RemoveProperties(tuple(gone))]
        shown, new = self._shown(view), {**args, "namespace": args["default_namespace"]}
        if any(shown[key] != new[key] for key in _DEFINITION):
            schema = to_iceberg_schema(StructType.fromJson(json.loads(args["schema"])))
            updates += version_updates(schema, self._version(args))
        try:
            view.change(updates)
        except NoSuchViewError:
            return False
        return True

    def create_or_replace_view(self, args: Arguments, java: object) -> bool:
        """Whether it is there now; False where a table has the name."""
        while not self.replace_view(args, java):
            if self.create_view(args, java):
                return True
            if self._lake.table_exists(_identifier(args)):
                return False
        return True

    def drop_view(self, args: Arguments, _java: object) -> bool:
        """Whether there was one."""
        try:
            self._lake.drop_view(_identifier(args))
        except NoSuchViewError:
            return False
        return True

    def rename_view(self, args: Arguments, _java: object) -> None:
        """To `to_namespace` and `to_name`."""
        to = Identifier(tuple(args["to_namespace"]), args["to_name"])
        self._lake.catalog.views.rename(_identifier(args), to)

    def _find(self, args: Arguments) -> View | None:
        try:
            return self._lake.load_view(_identifier(args))
        except NoSuchViewError:
            return None

    def _version(self, args: Arguments) -> ViewVersion:
        if args["properties"].get("table_type", "VIEW") != "VIEW":
            raise UnsupportedFeatureError(
                f"{dotted((*args['namespace'], args['name']))}: views of a lakehouse are plain "
                f"ones, not {args['properties']['table_type']}."
            )
        summary = {"engine-name": "Spark", "engine-version": pyspark.__version__}
        summary[CATALOG_NAME] = self._name
        summary[CONFIGS] = json.dumps(args["configs"], sort_keys=True)
        if args["schema_mode"] is not None:
            summary[SCHEMA_MODE] = args["schema_mode"]
        own = args["catalog"] == self._name
        return ViewVersion(
            version_id=1,
            schema_id=0,
            timestamp_ms=self._lake.environment.now_ms(),
            representations=(SqlRepresentation(args["sql"], SPARK),),
            default_namespace=tuple(args["default_namespace"]),
            # a catalog may be attached under another name next time
            default_catalog=None if own else args["catalog"],
            summary=summary,
        )

    def _shown(self, view: View) -> dict[str, Any]:
        version = view.metadata.current_version()
        columns = view.properties.get(QUERY_COLUMNS, "")
        return {
            "schema": shown_schema(view.schema()).json(),
            "properties": {
                key: value for key, value in view.properties.items() if key != QUERY_COLUMNS
            },
            "sql": view.sql(SPARK) if columns else _with_column_names(view),
            "catalog": version.default_catalog or self._name,
            "namespace": list(version.default_namespace),
            "configs": json.loads(version.summary.get(CONFIGS, "{}")),
            "schema_mode": version.summary.get(SCHEMA_MODE),
            "query_columns": columns.split(",") if columns else [],
        }


def _with_column_names(view: View) -> str:
    """The SELECT of a view of another engine, with the view's names for its columns.

    Spark finds the columns of a SELECT by the names that they had when the view was made, which
    nobody kept.
    """
    sql, names = view.sql(SPARK), [field.name for field in view.schema().fields]
    selected = output_names(sql, SPARK)
    if selected is not None and [column.lower() for column in selected] == [
        name.lower() for name in names
    ]:
        return sql
    aliases = ", ".join(quoted(name) for name in names)
    return f"SELECT * FROM ({sql}) AS v ({aliases})"


def _kept_properties(args: Arguments) -> dict[str, str]:
    kept = {key: value for key, value in args["properties"].items() if key not in _RESERVED}
    if args["query_columns"]:
        kept[QUERY_COLUMNS] = ",".join(args["query_columns"])
    return kept


def _identifier(args: Arguments) -> Identifier:
    return Identifier(tuple(args["namespace"]), args["name"])
