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
from lakehouse.spark.catalog import (
    layout_procedures,
    maintenance_procedures,
    snapshot_procedures,
    takeover_procedures,
)
from lakehouse.spark.catalog.alter_table import alter_table, with_defaults
from lakehouse.spark.catalog.cached_tables import refresh_cached
from lakehouse.spark.catalog.layout_procedures import iceberg_term
from lakehouse.spark.catalog.pipeline_tables import PipelineTables
from lakehouse.spark.catalog.procedure import Call, Procedure
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
PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedures in (
        snapshot_procedures, layout_procedures, maintenance_procedures, takeover_procedures,
    )
    for procedure in procedures.PROCEDURES
}  # fmt: skip
"""`CALL lake.system.rewrite_data_files(table => 'raw.events')`.

Names, arguments and columns are those of Iceberg's procedures on Spark, so that scripts carry over;
`health` and `advise` are this project's own, and those that stand for statements which Spark's
grammar does not have (`add_partition_field`, `create_branch`...).
"""


class LakeAnswers(Answers):
    """Answers for a lakehouse in one Spark session.

    Args:
        session: gives the session that reads and writes; called each time, as frames belong to it.
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

    def namespaces(self, args: Arguments, _java: object) -> list[list[str]]:
        """Directly below a namespace."""
        return [
            list(namespace) for namespace in self._catalog.list_namespaces(tuple(args["namespace"]))
        ]

    def namespace_exists(self, args: Arguments, _java: object) -> bool:
        """Whether the namespace exists."""
        return self._catalog.namespace_exists(tuple(args["namespace"]))

    def namespace_properties(self, args: Arguments, _java: object) -> Mapping[str, str]:
        """All properties of the namespace."""
        return dict(self._catalog.namespace_properties(tuple(args["namespace"])))

    def create_namespace(self, args: Arguments, _java: object) -> None:
        """Create a namespace with `properties`."""
        properties = {key: value for key, value in args["properties"].items() if key != "owner"}
        self._catalog.create_namespace(tuple(args["namespace"]), properties)

    def alter_namespace(self, args: Arguments, _java: object) -> None:
        """`set` and `removed` properties."""
        self._catalog.update_namespace_properties(
            tuple(args["namespace"]), args["set"], args["removed"]
        )

    def drop_namespace(self, args: Arguments, _java: object) -> bool:
        """Whether it is gone: False when it holds something, without `cascade`."""
        namespace = tuple(args["namespace"])
        dropped = [namespace]
        if args["cascade"]:
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

    def tables(self, args: Arguments, _java: object) -> list[str]:
        """Names in a namespace, without those of tables that pipelines keep their state in."""
        tables = self._catalog.list_tables(tuple(args["namespace"]))
        return [table.name for table in tables if not holds_state(table.name)]

    def table_exists(self, args: Arguments, _java: object) -> bool:
        """Whether `load` finds it."""
        return self._find(args) is not None or self._pipelines.has_new_table(args)

    def load(self, args: Arguments, _java: object) -> Answers | None:
        """A table, at `version` or `as_of_us` where one is said; None when there is none.

        `inserts` says that the statement adds rows and changes none.
        """
        named = self._find(args)
        if named is None:
            new = self._pipelines.new_table(args)
            if new is None:
                return None
            named = NamedTable(new, new.name)
        meant = named.at(args.get("version"), args.get("as_of_us"))
        return self._answers(meant, args)

    def load_relation(self, args: Arguments, java: object) -> Answers | dict[str, Any] | None:
        """A table, or what Spark has to know of a view; None when there is neither."""
        return self.load(args, java) or self._views.load_view(args, java)

    def create_table(self, args: Arguments, _java: object) -> Answers:
        """By `schema`, `partition_by` and `properties`."""
        waits = self._pipelines.makes(args)
        table = self._lake.create_table(
            _identifier(args),
            _schema(args),
            partition_by=_terms(args),
            properties=table_properties(args["properties"]),
            location=args["properties"].get("location"),
            staged=waits,
        )
        if waits:
            self._pipelines.made(table)
        elif args.get("by_stream"):
            self._of_streams.add(table.metadata_location)
        return self._answers(NamedTable(table, table.name))

    def stage(self, args: Arguments, _java: object) -> Answers:
        """A staged table: it appears with its first rows, and may replace an existing one."""
        identifier, partition_by = _identifier(args), _terms(args)
        schema, properties = _schema(args), table_properties(args["properties"])
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
                location=args["properties"].get("location"),
                staged=True,
            )
            staged = NewTable(made)
        by_workers = not hadoop_reads(self._session(), staged.table.location, staged.table.storage)
        return StagedTableAnswers(self._session, staged, by_workers=by_workers)

    def alter_table(self, args: Arguments, _java: object) -> Answers:
        """Apply `changes` in one commit; those of a branch's columns are the table's."""
        named = self._find(args)
        if named is None or named.branch is None:
            raise InvalidInputError(
                f"{dotted((*args['namespace'], args['name']))} is no table: alter the one that "
                "it is a part of"
            )
        if not self._pipelines.alter(args, named.table):
            alter_table(named.table, args["changes"], self._session())
        return self._answers(named)

    def drop_table(self, args: Arguments, _java: object) -> bool:
        """Whether there was one; with `purge` its files go too."""
        identifier = _identifier(args)
        if not self._lake.table_exists(identifier):
            part = self._find(args)
            if part is None:
                return False
            raise InvalidInputError(
                f"{part.shown} is a part of {part.table.name}, and no table that can be dropped; "
                f"CALL {self._name}.system.drop_branch and drop_tag drop branches and tags",
                table=part.table.name,
            )
        self._lake.drop_table(identifier, purge=args["purge"])
        return True

    def rename_table(self, args: Arguments, _java: object) -> None:
        """To `to_namespace` and `to_name`."""
        to = Identifier(tuple(args["to_namespace"]), args["to_name"])
        self._catalog.rename(_identifier(args), to)

    # Settings

    def settings(self, args: Arguments, _java: object) -> None:
        """Those of the session that Iceberg's runtime has."""
        check_settings(args)

    def catalog_options(self, args: Arguments, _java: object) -> None:
        """Options of the catalog in the session (`spark.sql.catalog.<name>.*`), by `names`."""
        logger.warning(
            "catalog %s: nothing honours %s: the options of a lakehouse are those of load_catalog",
            self._name,
            ", ".join(f"spark.sql.catalog.{self._name}.{name}" for name in sorted(args["names"])),
        )

    # Procedures

    def procedures(self, _args: Arguments, _java: object) -> list[str]:
        """Names of the procedures."""
        return sorted(PROCEDURES)

    def procedure(self, args: Arguments, _java: object) -> dict[str, Any]:
        """What one takes and returns. Raises InvalidInputError."""
        procedure = PROCEDURES.get(args["name"])
        if procedure is None or [part.lower() for part in args["namespace"]] != ["system"]:
            raise InvalidInputError(
                f"there is no procedure {dotted((*args['namespace'], args['name']))}; CALL "
                f"{self._name}.system. knows {', '.join(sorted(PROCEDURES))}"
            )
        return procedure.facts()

    def call(self, args: Arguments, _java: object) -> dict[str, Any]:
        """The rows that a procedure gives."""
        given = {name: value for name, value in args["arguments"].items() if value is not None}
        call = Call(self._lake, self._session(), self._name, given)
        return {"rows": PROCEDURES[args["name"]].rows(call)}

    def _read_branch(self, table: Table, branch: str) -> None:
        """What was cached by the table's name is of the branch that the session read before."""
        table_uuid = table.metadata.table_uuid
        if self._branches.get(table_uuid, "main") != branch:
            self._branches[table_uuid] = branch
            refresh_cached(self._session(), table_uuid)

    def _find(self, args: Arguments) -> NamedTable | None:
        return find_table(self._lake, args["namespace"], args["name"])

    def _answers(self, named: NamedTable, args: Arguments = MappingProxyType({})) -> Answers:
        table, spark = named.table, self._session()
        if named.metadata_table == CHANGES:
            if named.snapshot_id is not None or named.as_of_ms is not None or named.ref:
                raise InvalidInputError(f"{named.shown} has no versions: they are its rows")
            return ChangesAnswers(self._session, named.shown, table)
        if named.metadata_table is not None:
            return MetadataTableAnswers(spark, named)
        by_workers = not hadoop_reads(spark, table.location, table.storage)
        made_for_it = "pipeline" in args and table.metadata_location in self._of_streams
        if made_for_it:
            self._of_streams.remove(table.metadata_location)
        if named.branch is not None:
            branch = named.branch
            if not named.ref:
                branch = wap_branch(spark, table) or branch
                self._read_branch(table, branch)
                answers = self._pipelines.answers(args, table, branch, by_workers=by_workers)
                if answers is not None:
                    return answers
            return WritableTableAnswers(
                self._session,
                named.shown,
                table,
                branch,
                by_workers=by_workers,
                ref=branch if named.ref or branch in table.refs() else "main",
                inserts=args.get("inserts", False),
                made_for_it=made_for_it,
            )
        return TableAnswers(
            self._session,
            named.shown,
            named.scan().request,
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


def _schema(args: Arguments) -> Schema:
    """Columns of CREATE TABLE, with their defaults."""
    shown = StructType.fromJson(json.loads(args["schema"]))
    return with_defaults(to_iceberg_schema(shown), args["defaults"])


def _terms(args: Arguments) -> list[str]:
    """What CREATE TABLE partitions by, or the table property `lakehouse.partition-by`."""
    terms = [iceberg_term(term) for term in args["partition_by"]]
    if any(term.startswith("cluster_by(") for term in terms):
        raise UnsupportedFeatureError(
            f"{_identifier(args)}: Iceberg tables have no clustering columns: partition by the "
            f"table property {TableProperties.partition_by.name}, and order rows by CALL "
            "system.write_ordered_by"
        )
    by_property = TableProperties(args["properties"]).partition_by
    if terms and by_property:
        raise InvalidInputError(
            f"{_identifier(args)}: partition columns ({', '.join(terms)}) and the table property "
            f"{TableProperties.partition_by.name} ({', '.join(by_property)}) are two partitionings:"
            " leave one out, a column is also a term"
        )
    return terms or list(by_property)


def _identifier(args: Arguments) -> Identifier:
    return Identifier(tuple(args["namespace"]), args["name"])
