"""A lakehouse as Spark's catalog plugin asks for it: namespaces and tables."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakehouse.catalog.catalog_protocol import walk_namespaces
from lakehouse.errors import InvalidInputError, NamespaceNotEmptyError, UnsupportedFeatureError
from lakehouse.lake import Lakehouse
from lakehouse.spark.catalog.alter_table import alter_table
from lakehouse.spark.catalog.cached_tables import refresh_cached
from lakehouse.spark.catalog.column_defaults import with_defaults
from lakehouse.spark.catalog.layout_procedures import iceberg_term
from lakehouse.spark.catalog.pipeline_tables import PipelineTables
from lakehouse.spark.catalog.procedure import Call
from lakehouse.spark.catalog.procedure_list import PROCEDURES
from lakehouse.spark.catalog.staged_tables import (
    NewTable,
    Staged,
    StagedTableAnswers,
    replaced_table,
)
from lakehouse.spark.catalog.table_names import CHANGES, NamedTable, find_table
from lakehouse.spark.catalog.view_answers import ViewAnswers
from lakehouse.spark.hadoop_locations import hadoop_reads
from lakehouse.spark.jvm.answers import Answers, Arguments
from lakehouse.spark.reading.metadata_frames import MetadataTableAnswers
from lakehouse.spark.reading.row_streams import ChangesAnswers
from lakehouse.spark.reading.table_answers import TableAnswers
from lakehouse.spark.session_settings import check_settings
from lakehouse.spark.spark_types import to_iceberg_schema
from lakehouse.spark.writing.writable_table import WritableTableAnswers
from lakehouse.spark.writing.write_target import wap_branch
from lakehouse.spec.identifier import Identifier, dotted, holds_state
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table

logger = logging.getLogger(__name__)

PROVIDERS = frozenset({"iceberg", "lakehouse", "parquet"})
"""What tables are made `USING`; `parquet` is what Spark takes where a frame names nothing."""
_RESERVED = frozenset(
    {"provider", "location", "owner", "external", "is_managed_location", "table_type"}
)


class LakeAnswers(Answers):
    """Answers for a lakehouse in one Spark session.

    Args:
        session: the session that reads and writes; asked for each time, because frames are made in
            it.
        lake: the lakehouse.
        name: its name in the session.
    """

    def __init__(self, session: Callable[[], SparkSession], lake: Lakehouse, name: str) -> None:
        views = ViewAnswers(lake, name)
        super().__init__(
            f"catalog {name}",
            {
                "namespaces": self.namespaces,
                "namespace_exists": self.namespace_exists,
                "namespace_properties": self.namespace_properties,
                "create_namespace": self.create_namespace,
                "alter_namespace": self.alter_namespace,
                "drop_namespace": self.drop_namespace,
                "tables": self.tables,
                "table_exists": self.table_exists,
                "load": self.load,
                "create_table": self.create_table,
                "stage": self.stage,
                "alter_table": self.alter_table,
                "drop_table": self.drop_table,
                "rename_table": self.rename_table,
                "procedures": self.procedures,
                "procedure": self.procedure,
                "call": self.call,
                "load_relation": self.load_relation,
                "settings": self.settings,
                "catalog_options": self.catalog_options,
                **views.verbs(),
            },
        )
        self._name = name
        self._session = session
        self._lake = lake
        self._catalog = lake.catalog
        self._views = views
        self._pipelines = PipelineTables(session)
        self._of_streams: set[str] = set()  # locations of tables that streams have just created
        self._branches: dict[str, str] = {}  # of tables that `spark.wap.branch` ever was about

    # Namespaces

    def namespaces(self, told: Arguments, _thing: object) -> list[list[str]]:
        """Directly below a namespace."""
        return [
            list(namespace) for namespace in self._catalog.list_namespaces(tuple(told["namespace"]))
        ]

    def namespace_exists(self, told: Arguments, _thing: object) -> bool:
        """Whether the namespace exists."""
        return self._catalog.namespace_exists(tuple(told["namespace"]))

    def namespace_properties(self, told: Arguments, _thing: object) -> Mapping[str, str]:
        """All properties of the namespace."""
        return dict(self._catalog.namespace_properties(tuple(told["namespace"])))

    def create_namespace(self, told: Arguments, _thing: object) -> None:
        """Create a namespace with `properties`."""
        properties = {key: value for key, value in told["properties"].items() if key != "owner"}
        self._catalog.create_namespace(tuple(told["namespace"]), properties)

    def alter_namespace(self, told: Arguments, _thing: object) -> None:
        """`set` and `removed` properties."""
        self._catalog.update_namespace_properties(
            tuple(told["namespace"]), told["set"], told["removed"]
        )

    def drop_namespace(self, told: Arguments, _thing: object) -> bool:
        """Whether it is gone: False when it holds something and `cascade` was not asked for."""
        namespace = tuple(told["namespace"])
        dropped = [namespace]
        if told["cascade"]:
            dropped = list(walk_namespaces(self._catalog, namespace))[::-1]
            for name in dropped:
                for table in self._catalog.list_tables(name):
                    self._catalog.drop(table)
                for view in self._catalog.views.names(name):
                    self._catalog.views.drop(view)
        try:
            for name in dropped:
                self._catalog.drop_namespace(name)
        except NamespaceNotEmptyError:
            return False
        return True

    # Tables

    def tables(self, told: Arguments, _thing: object) -> list[str]:
        """Names in a namespace, without those of tables that pipelines keep their state in."""
        tables = self._catalog.list_tables(tuple(told["namespace"]))
        return [table.name for table in tables if not holds_state(table.name)]

    def table_exists(self, told: Arguments, _thing: object) -> bool:
        """Whether `load` finds it."""
        return self._find(told) is not None or self._pipelines.has_new_table(told)

    def load(self, told: Arguments, _thing: object) -> Answers | None:
        """A table, at `version` or `as_of_us` where one is said; None when there is none.

        `inserts` says that the statement adds rows and changes none.
        """
        found = self._find(told)
        if found is None:
            new = self._pipelines.new_table(told)
            if new is None:
                return None
            found = NamedTable(new, new.name)
        meant = found.at(told.get("version"), told.get("as_of_us"))
        return self._answers(meant, told)

    def load_relation(self, told: Arguments, thing: object) -> Answers | dict[str, Any] | None:
        """A table, or what Spark has to know of a view; None when there is neither."""
        return self.load(told, thing) or self._views.load_view(told, thing)

    def create_table(self, told: Arguments, _thing: object) -> Answers:
        """By `schema`, `partition_by` and `properties`."""
        waits = self._pipelines.makes(told)
        table = self._lake.create_table(
            _identifier(told),
            _schema(told),
            partition_by=_terms(told),
            properties=table_properties(told["properties"]),
            location=told["properties"].get("location"),
            staged=waits,
        )
        if waits:
            self._pipelines.made(table)
        elif told.get("by_stream"):
            self._of_streams.add(table.metadata_location)
        return self._answers(NamedTable(table, table.name))

    def stage(self, told: Arguments, _thing: object) -> Answers:
        """A staged table: it appears with its first rows, and may replace an existing one."""
        identifier, partition_by = _identifier(told), _terms(told)
        schema, properties = _schema(told), table_properties(told["properties"])
        staged: Staged
        if self._lake.table_exists(identifier):
            before = self._lake.load_table(identifier)
            staged = replaced_table(before, schema, partition_by, properties)
        else:
            made = self._lake.create_table(
                identifier,
                schema,
                partition_by=partition_by,
                properties=properties,
                location=told["properties"].get("location"),
                staged=True,
            )
            staged = NewTable(made)
        by_workers = not hadoop_reads(self._session(), staged.table.location, staged.table.storage)
        return StagedTableAnswers(self._session, staged, by_workers=by_workers)

    def alter_table(self, told: Arguments, _thing: object) -> Answers:
        """Apply `changes` in one commit; those of a branch's columns are the table's."""
        found = self._find(told)
        if found is None or found.branch is None:
            raise InvalidInputError(
                f"{dotted((*told['namespace'], told['name']))} is no table: alter the one that "
                "it is a part of"
            )
        if not self._pipelines.alter(told, found.table):
            alter_table(found.table, told["changes"], self._session())
        return self._answers(found)

    def drop_table(self, told: Arguments, _thing: object) -> bool:
        """Whether there was one; with `purge` its files go too."""
        identifier = _identifier(told)
        if not self._lake.table_exists(identifier):
            part = self._find(told)
            if part is None:
                return False
            raise InvalidInputError(
                f"{part.shown} is a part of {part.table.name}, and no table that can be dropped; "
                f"CALL {self._name}.system.drop_branch and drop_tag drop branches and tags",
                table=part.table.name,
            )
        self._lake.drop_table(identifier, purge=told["purge"])
        return True

    def rename_table(self, told: Arguments, _thing: object) -> None:
        """To `to_namespace` and `to_name`."""
        to = Identifier(tuple(told["to_namespace"]), told["to_name"])
        self._catalog.rename(_identifier(told), to)

    # Settings

    def settings(self, told: Arguments, _thing: object) -> None:
        """Those of the session that Iceberg's runtime has."""
        check_settings(told)

    def catalog_options(self, told: Arguments, _thing: object) -> None:
        """Options of the catalog in the session (`spark.sql.catalog.<name>.*`), by `names`."""
        logger.warning(
            "catalog %s: nothing honours %s: the options of a lakehouse are those of load_catalog",
            self._name,
            ", ".join(f"spark.sql.catalog.{self._name}.{name}" for name in sorted(told["names"])),
        )

    # Procedures

    def procedures(self, _told: Arguments, _thing: object) -> list[str]:
        """Names of the procedures."""
        return sorted(PROCEDURES)

    def procedure(self, told: Arguments, _thing: object) -> dict[str, Any]:
        """What one takes and returns. Raises InvalidInputError."""
        found = PROCEDURES.get(told["name"])
        if found is None or [part.lower() for part in told["namespace"]] != ["system"]:
            raise InvalidInputError(
                f"there is no procedure {dotted((*told['namespace'], told['name']))}; CALL "
                f"{self._name}.system. knows {', '.join(sorted(PROCEDURES))}"
            )
        return found.told()

    def call(self, told: Arguments, _thing: object) -> dict[str, Any]:
        """The rows that a procedure gives."""
        given = {name: value for name, value in told["arguments"].items() if value is not None}
        call = Call(self._lake, self._session(), self._name, given)
        return {"rows": PROCEDURES[told["name"]].rows(call)}

    def _read_branch(self, table: Table, branch: str) -> None:
        """What was cached by the table's name is of the branch that the session read before."""
        table_uuid = table.metadata.table_uuid
        if self._branches.get(table_uuid, "main") != branch:
            self._branches[table_uuid] = branch
            refresh_cached(self._session(), table_uuid)

    def _find(self, told: Arguments) -> NamedTable | None:
        return find_table(self._lake, told["namespace"], told["name"])

    def _answers(self, found: NamedTable, told: Arguments = MappingProxyType({})) -> Answers:
        table, spark = found.table, self._session()
        if found.metadata_table == CHANGES:
            if found.snapshot_id is not None or found.as_of_ms is not None or found.ref:
                raise InvalidInputError(f"{found.shown} has no versions: they are its rows")
            return ChangesAnswers(self._session, found.shown, table)
        if found.metadata_table is not None:
            return MetadataTableAnswers(spark, found)
        by_workers = not hadoop_reads(spark, table.location, table.storage)
        made_for_it = "pipeline" in told and table.metadata_location in self._of_streams
        if made_for_it:
            self._of_streams.remove(table.metadata_location)
        if found.branch is not None:
            branch = found.branch
            if not found.ref:
                branch = wap_branch(spark, table) or branch
                self._read_branch(table, branch)
                asked = self._pipelines.answers(told, table, branch, by_workers=by_workers)
                if asked is not None:
                    return asked
            return WritableTableAnswers(
                self._session,
                found.shown,
                table,
                branch,
                by_workers=by_workers,
                ref=branch if found.ref or branch in table.refs() else "main",
                inserts=told.get("inserts", False),
                made_for_it=made_for_it,
            )
        return TableAnswers(
            self._session,
            found.shown,
            found.scan().request,
            table.storage,
            table.listeners,
            by_workers=by_workers,
        )


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """What CREATE TABLE says that becomes table properties.

    Raises InvalidInputError for `USING` something else.
    """
    provider = given.get("provider", "iceberg")
    if provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            "tables of a lakehouse are Iceberg tables: write USING iceberg, or leave USING "
            f"{provider} out"
        )
    return {
        key: value
        for key, value in given.items()
        if key not in _RESERVED and not key.startswith("option.")
    }


def _schema(told: Arguments) -> Schema:
    """Columns of CREATE TABLE, with their defaults."""
    shown = StructType.fromJson(json.loads(told["schema"]))
    return with_defaults(to_iceberg_schema(shown), told["defaults"])


def _terms(told: Arguments) -> list[str]:
    """What CREATE TABLE partitions by, or the table property `lakehouse.partition-by`."""
    terms = [iceberg_term(term) for term in told["partition_by"]]
    if any(term.startswith("cluster_by(") for term in terms):
        raise UnsupportedFeatureError(
            f"{_identifier(told)}: Iceberg tables have no clustering columns: partition by the "
            f"table property {TableProperties.partition_by.name}, and order rows by CALL "
            "system.write_ordered_by"
        )
    by_property = TableProperties(told["properties"]).partition_by
    if terms and by_property:
        raise InvalidInputError(
            f"{_identifier(told)}: partition columns ({', '.join(terms)}) and the table property "
            f"{TableProperties.partition_by.name} ({', '.join(by_property)}) are two partitionings:"
            " leave one out, a column is also a term"
        )
    return terms or list(by_property)


def _identifier(told: Arguments) -> Identifier:
    return Identifier(tuple(told["namespace"]), told["name"])
