"""The catalog as users meet it: names in, tables out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakehouse.catalog.branch_catalog import BranchCatalog
from lakehouse.catalog.catalog_by_uri import open_catalog
from lakehouse.catalog.catalog_protocol import (
    Catalog,
    TableVersion,
    walk_namespaces,
    walk_tables,
    walk_views,
)
from lakehouse.catalog.configured import choose_catalog
from lakehouse.catalog.creating_catalog import CreatingCatalog
from lakehouse.catalog.open_branches import OpenBranches
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.delta_log.following import DeltaFollowedCatalog
from lakehouse.engines import to_schema
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError, NamespaceAlreadyExistsError
from lakehouse.maintenance.reachability.neighbours import check_not_shared
from lakehouse.scan.reports.listeners import Listeners, PlanListener
from lakehouse.spec.identifier import Identifier, dotted, split_name
from lakehouse.spec.metadata.table_metadata import check_writable_version, new_table_metadata
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.table_properties import check_given_properties, parse_format_version
from lakehouse.spec.views.view_updates import new_view_metadata
from lakehouse.table import Table
from lakehouse.table.html_view import html_table
from lakehouse.table.joint_transaction import JointTransaction
from lakehouse.table.lake_version import LakeVersion
from lakehouse.table.publication import BranchOfLake
from lakehouse.table.scan_reports import CatalogReports
from lakehouse.table.times import Moment
from lakehouse.view import Sql, View, first_version

Name = str | tuple[str, ...] | Identifier


class Lakehouse:
    """Tables by name, over any catalog.

    >>> lake = lh.load_catalog(folder)
    >>> lake.list_namespaces()
    []

    Attributes:
        catalog: the catalog underneath, which knows requirements and updates only.
        environment: clock, ids and randomness of everything done through this object.
        listeners: receive a report of every scan planned through this object's tables.
    """

    def __init__(self, catalog: Catalog, environment: Environment | None = None) -> None:
        self.catalog = catalog
        self.environment = environment or Environment.system()
        self.listeners = Listeners(self.environment.now_ms)
        if catalog.takes_reports:
            self.listeners.add(CatalogReports(catalog))

    def __repr__(self) -> str:
        return f"Lakehouse({self.catalog.name!r}, warehouse={hide_in_urls(self.warehouse)!r})"

    def _repr_html_(self) -> str:
        try:
            names = [(name,) for name in self.list_tables()]
        except LakehouseError as error:
            names = [(f"The catalog does not answer: {error}",)]
        what = html_table((), [("catalog", self.name), ("warehouse", hide_in_urls(self.warehouse))])
        return f"<div>{what}{html_table(('tables',), names)}</div>"

    @property
    def name(self) -> str:
        """The catalog's name.

        >>> lake.name
        'lakehouse'
        """
        return self.catalog.name

    @property
    def warehouse(self) -> str:
        """The location below which new tables are created.

        >>> events.location.startswith(lake.warehouse)
        True
        """
        return self.catalog.warehouse

    def create_table(
        self,
        name: Name,
        schema: object,
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        format_version: int | None = None,
        location: str | None = None,
        staged: bool = False,
    ) -> Table:
        """Create a table, and its namespace if that is missing.

        >>> table = lake.create_table(
        ...     "raw.visits",
        ...     pa.schema({"at": pa.timestamp("us", tz="UTC"), "user_id": pa.int64()}),
        ...     partition_by=["day(at)", "bucket(16, user_id)"],
        ...     sort_by=["at"],
        ...     properties={"comment": "one row a visit"},
        ... )
        >>> lake.list_tables("raw")
        ['raw.events', 'raw.visits']

        Args:
            name: dotted name, such as "raw.events".
            schema: a pyarrow, pyiceberg or Spark schema.
            partition_by: partition terms, such as "day(event_ts)", "bucket(16, user_id)", "region".
            sort_by: sort terms, such as "event_ts", "bucket(16, user_id) desc nulls last".
            properties: table properties; `format-version` may be among them, as in other engines.
            format_version: 2, the default, or 3.
            location: where to put the table; a folder of the warehouse by default.
            staged: the table appears with its first commit. A process that stops before leaves at
                most files that no table names.

        Raises:
            TableAlreadyExistsError | ViewAlreadyExistsError: the name is taken.
            InvalidIdentifierError | InvalidSchemaError | InvalidPartitionSpecError |
                InvalidLocationError: bad input.
        """
        identifier = Identifier.parse(name)
        iceberg = to_schema(schema)
        given = dict(properties or {})
        check_given_properties(identifier, given)
        if staged:  # a server says where, and for that its namespace must be there
            self.create_namespace(identifier.namespace, exist_ok=True)
        version = format_version or parse_format_version(given.get("format-version", "2"))
        check_writable_version(version)
        metadata = new_table_metadata(
            schema=iceberg,
            spec=parse_partition_spec(partition_by, iceberg),
            sort_order=parse_sort_order(sort_by, iceberg),
            location=location or self.catalog.default_location(identifier, staged=staged),
            properties=given,
            format_version=version,
            table_uuid=str(self.environment.new_uuid()),
            now_ms=self.environment.now_ms(),
        )
        self.create_namespace(identifier.namespace, exist_ok=True)
        if not staged:
            return self._table(self.catalog.create(identifier, metadata))
        creating = CreatingCatalog(self.catalog, identifier, metadata, self.environment)
        creating.check()
        return Table(creating, creating.first, self.environment, self.listeners)

    def load_table(self, name: Name) -> Table:
        """Open a table at its current version. Raises NoSuchTableError.

        >>> lake.load_table("raw.events").scan().count()
        3
        """
        return self._table(self.catalog.load(Identifier.parse(name)))

    def table_exists(self, name: Name) -> bool:
        """Whether the catalog has a table of this name.

        >>> lake.table_exists("raw.events"), lake.table_exists("raw.nothing")
        (True, False)
        """
        return self.catalog.table_exists(Identifier.parse(name))

    def list_tables(self, namespace: str | tuple[str, ...] | None = None) -> list[str]:
        """Dotted names of the tables, sorted.

        >>> lake.list_tables()
        ['raw.events']

        Of the tables directly in one namespace, or of all in all namespaces, nested ones too.

        Raises NoSuchNamespaceError.
        """
        names = (
            walk_tables(self.catalog)
            if namespace is None
            else self.catalog.list_tables(_namespace(namespace))
        )
        return sorted(str(name) for name in names)

    def drop_table(self, name: Name, *, purge: bool = False) -> None:
        """Remove a table from the catalog; with `purge`, delete the files in its folder too.

        >>> lake.drop_table("raw.events")
        >>> lake.list_tables()
        []
        >>> lake.register_table("raw.events", events.metadata_location).scan().count()
        3

        Data that `write.data.path` put elsewhere stays. Without `purge` every file stays, and
        `register_table` brings the table back under any name.

        Raises:
            NoSuchTableError: there is no such table.
            MaintenanceRefusedError: `purge` of a table with `gc.enabled=false`, or whose files
                another table uses.
            InvalidLocationError: `purge` of a table whose metadata says that it is outside the
                warehouse.
        """
        identifier = Identifier.parse(name)
        if purge:
            check_not_shared(self.catalog, identifier)
        self.catalog.drop(identifier, purge=purge)

    def rename_table(self, name: Name, new_name: Name) -> Table:
        """Rename a table. Raises NoSuchTableError, TableAlreadyExistsError.

        >>> lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        >>> _ = lake.create_table("raw.events", more.schema)
        >>> lake.rename_table("raw.events", "raw.actions").name
        'raw.actions'
        """
        self.catalog.rename(Identifier.parse(name), Identifier.parse(new_name))
        return self.load_table(new_name)

    def register_table(self, name: Name, metadata_location: str) -> Table:
        """Register an existing table by the location of its metadata file.

        >>> lake.drop_table("raw.events")
        >>> lake.register_table("raw.events", events.metadata_location).scan().count()
        3
        """
        identifier = Identifier.parse(name)
        self.create_namespace(identifier.namespace, exist_ok=True)
        return self._table(self.catalog.register(identifier, metadata_location))

    def import_delta(self, location: str, name: Name, *, version: int | None = None) -> Table:
        """Make a table of the files of a Delta table, where they are: one commit, no data read.

        The Delta table stays as it is, and later changes of it are not followed. The files belong
        to it: they are never deleted from here. Needs the extra `delta`.

        >>> import deltalake
        >>> deltalake.write_deltalake(f"{folder}/visits", more)
        >>> lake.import_delta(f"{folder}/visits", "raw.visits").scan().count()
        1

        Args:
            location: folder of the Delta table.
            name: of the new table; it has version 3 where rows are deleted, else 2.
            version: which version of the Delta table; the newest by default.

        Raises:
            InvalidInputError | UnsupportedFeatureError: see `read_delta`.
            InvalidSchemaError: a file that cannot be taken in, see `Table.add_files`.
            TableAlreadyExistsError: the name is taken.
        """
        from lakehouse.table.delta_import import read_delta, take_over  # noqa: PLC0415 - an extra

        delta = read_delta(location, self.catalog.properties, version)
        table = self.create_table(
            name,
            delta.schema,
            partition_by=delta.partition_by,
            format_version=3 if delta.deleted else None,
            staged=bool(delta.files),
        )
        if delta.files:
            take_over(table, delta)
        return self.load_table(name)

    def transaction(self) -> JointTransaction:
        """Change several tables in one commit. Raises UnsupportedFeatureError where none can be.

        In a catalog on a database, and on our server above one, everybody sees all or none of it.
        In a warehouse of files so does whoever opens it as this library does; other engines see the
        tables change one after the other.

        >>> lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        >>> _ = lake.create_table("raw.sold", more.schema)
        >>> with lake.transaction() as tx:
        ...     result = tx.table("raw.sold").append(more)
        >>> lake.load_table("raw.sold").scan().count()
        1
        """
        return JointTransaction(self.catalog, self.environment, self.listeners)

    def on_branch(self, branch: str, *, keep_ms: int | None = None) -> Lakehouse:
        """The same lake seen from a branch: writes go to it, reads find main where it has nothing.

        >>> dev = lake.on_branch("dev")
        >>> _ = dev.load_table("raw.events").append(more)
        >>> dev.load_table("raw.events").scan().count(), events.refresh().scan().count()
        (4, 3)

        Args:
            branch: its name in every table.
            keep_ms: expiry removes it from a table so long after the last write to it.
        """
        catalog = BranchCatalog(self.catalog, branch, self.environment, keep_ms)
        lake = Lakehouse(catalog, self.environment)
        lake.listeners = self.listeners
        return lake

    def branch(self, name: str) -> BranchOfLake:
        """A branch of the lake, to be published or dropped.

        >>> _ = lake.on_branch("dev").load_table("raw.events").append(more)
        >>> published = lake.branch("dev").publish()
        >>> published.version, events.refresh().scan().count()
        (1, 4)
        """
        return BranchOfLake(self.catalog, name, self.environment)

    def at(self, version: int | None = None, *, time: Moment | None = None) -> Lakehouse:
        """The lake as it was after a publication, to be read: all its tables fit together.

        >>> _ = lake.on_branch("dev").load_table("raw.events").append(more)
        >>> _ = lake.branch("dev").publish()
        >>> _ = events.append(more)
        >>> lake.at(version=1).load_table("raw.events").scan().count()
        4

        Args:
            version: of the lake, see `lakehouse.publications`; None: the newest.
            time: instead of a version: the newest that was published by then, and other tables as
                they were then.

        Raises:
            NoSuchSnapshotError: there is no such version, here, or what a table was then has
                expired, when that is loaded.
        """
        catalog = LakeVersion(self.catalog, self.environment, version, time)
        lake = Lakehouse(catalog, self.environment)
        lake.listeners = self.listeners
        return lake

    def as_of(self, text: str) -> Lakehouse:
        """As `at`, by a text that people write: a version such as `41`, or a time.

        >>> _ = lake.on_branch("dev").load_table("raw.events").append(more)
        >>> _ = lake.branch("dev").publish()
        >>> lake.as_of("1").load_table("raw.events").scan().count()
        4

        Raises:
            InvalidInputError: it is neither.
            NoSuchSnapshotError: see `at`.
        """
        return self.at(int(text)) if text.isdecimal() else self.at(time=text)

    def branches(self) -> dict[str, list[str]]:
        """The branches of the lake, with the tables that may have rows on each.

        >>> lake.branch("dev").create()
        >>> lake.branches()
        {'dev': []}
        """
        noted = OpenBranches(self.catalog, self.environment).all()
        return {branch: sorted(map(str, tables)) for branch, tables in noted.items()}

    def create_view(
        self,
        name: Name,
        sql: Sql,
        schema: object,
        *,
        properties: Mapping[str, str] | None = None,
        default_namespace: str | tuple[str, ...] | None = None,
    ) -> View:
        """Create a view, and its namespace if that is missing.

        >>> users = lake.create_view(
        ...     "raw.users",
        ...     {"spark": "SELECT DISTINCT user_id FROM events"},
        ...     pa.schema({"user_id": pa.int64()}),
        ...     properties={"comment": "everybody who was seen"},
        ... )
        >>> lake.list_views("raw")
        ['raw.users']

        Args:
            name: dotted name; tables and views share their names.
            sql: a SELECT in Spark's dialect, or the same SELECT in several, by dialect.
            schema: of its result, a pyarrow, pyiceberg or Spark schema.
            properties: of the view, such as `comment`.
            default_namespace: for names of one part in the SELECT; the view's own by default.

        Raises:
            ViewAlreadyExistsError | TableAlreadyExistsError: the name is taken.
            InvalidIdentifierError | InvalidSchemaError | InvalidViewError: bad input.
        """
        identifier = Identifier.parse(name)
        names = identifier.namespace if default_namespace is None else _namespace(default_namespace)
        now_ms = self.environment.now_ms()
        metadata = new_view_metadata(
            view_uuid=str(self.environment.new_uuid()),
            location=self.catalog.default_location(identifier),
            schema=to_schema(schema),
            version=first_version(sql, names, now_ms),
            properties=properties or {},
            now_ms=now_ms,
        )
        self.create_namespace(identifier.namespace, exist_ok=True)
        stored = self.catalog.views.create(identifier, metadata)
        return View(self.catalog, stored, self.environment)

    def load_view(self, name: Name) -> View:
        """Open a view as it is now. Raises NoSuchViewError.

        >>> _ = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> lake.load_view("raw.one").sql("spark")
        'SELECT 1 AS n'
        """
        stored = self.catalog.views.load(Identifier.parse(name))
        return View(self.catalog, stored, self.environment)

    def view_exists(self, name: Name) -> bool:
        """Whether the catalog has a view of this name.

        >>> _ = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> lake.view_exists("raw.one"), lake.view_exists("raw.events")
        (True, False)
        """
        return self.catalog.views.exists(Identifier.parse(name))

    def list_views(self, namespace: str | tuple[str, ...] | None = None) -> list[str]:
        """Dotted names of the views, sorted: of one namespace, or of all, nested ones too.

        >>> _ = lake.create_view("marts.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> lake.list_views()
        ['marts.one']

        Raises NoSuchNamespaceError.
        """
        names = (
            walk_views(self.catalog)
            if namespace is None
            else self.catalog.views.names(_namespace(namespace))
        )
        return sorted(str(name) for name in names)

    def drop_view(self, name: Name) -> None:
        """Remove a view. Raises NoSuchViewError.

        >>> _ = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> lake.drop_view("raw.one")
        >>> lake.list_views()
        []
        """
        self.catalog.views.drop(Identifier.parse(name))

    def rename_view(self, name: Name, new_name: Name) -> View:
        """Rename a view.

        >>> lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        >>> _ = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> lake.rename_view("raw.one", "raw.first").name
        'raw.first'

        Raises NoSuchViewError, ViewAlreadyExistsError, TableAlreadyExistsError.
        """
        self.catalog.views.rename(Identifier.parse(name), Identifier.parse(new_name))
        return self.load_view(new_name)

    def create_namespace(
        self,
        namespace: str | tuple[str, ...],
        properties: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Create a namespace. Raises NamespaceAlreadyExistsError unless `exist_ok`.

        >>> lake.create_namespace("marts", {"owner": "ada"})
        >>> lake.namespace_properties("marts")["owner"]
        'ada'
        """
        try:
            self.catalog.create_namespace(_namespace(namespace), dict(properties or {}))
        except NamespaceAlreadyExistsError:
            if not exist_ok:
                raise

    def list_namespaces(self) -> list[str]:
        """Dotted names of all namespaces, nested ones too, sorted.

        >>> lake.create_namespace("marts.daily")
        >>> lake.list_namespaces()
        ['marts', 'marts.daily', 'raw']
        """
        return sorted(dotted(namespace) for namespace in walk_namespaces(self.catalog))

    def namespace_properties(self, namespace: str | tuple[str, ...]) -> Mapping[str, str]:
        """The properties of a namespace. Raises NoSuchNamespaceError.

        >>> lake.create_namespace("marts", {"owner": "ada"})
        >>> lake.namespace_properties("marts")["owner"]
        'ada'
        """
        return self.catalog.namespace_properties(_namespace(namespace))

    def drop_namespace(self, namespace: str | tuple[str, ...]) -> None:
        """Remove an empty namespace. Raises NamespaceNotEmptyError, NoSuchNamespaceError.

        >>> lake.create_namespace("marts")
        >>> lake.drop_namespace("marts")
        >>> lake.list_namespaces()
        ['raw']
        """
        self.catalog.drop_namespace(_namespace(namespace))

    def add_listener(self, listener: PlanListener) -> None:
        """Report every later scan to `listener` (see `lakehouse.scan.reports.listeners`).

        >>> class Printer:
        ...     def scan_planned(self, report):
        ...         print(report.table, report.predicate, report.rows_planned)
        >>> lake.add_listener(Printer())
        >>> rows = lake.load_table("raw.events").scan(where="user_id = 1").to_arrow()
        """
        self.listeners.add(listener)

    def remove_listener(self, listener: PlanListener) -> None:
        """Stop sending reports to `listener`.

        >>> class Counter:
        ...     scans = 0
        ...     def scan_planned(self, report):
        ...         self.scans += 1
        >>> counter = Counter()
        >>> lake.add_listener(counter)
        >>> _ = events.scan().plan()
        >>> lake.remove_listener(counter)
        >>> _ = events.scan().plan()
        >>> counter.scans
        1
        """
        self.listeners.remove(listener)

    def _table(self, version: TableVersion) -> Table:
        return Table(self.catalog, version, self.environment, self.listeners)


def load_catalog(
    catalog: str | os.PathLike[str] | None = None,
    /,
    *,
    uri: str | None = None,
    warehouse: str | os.PathLike[str] | None = None,
    name: str | None = None,
    environment: Environment | None = None,
    **properties: str,
) -> Lakehouse:
    """Open a catalog by its location, or by its name in pyiceberg's configuration.

    >>> lake = lh.load_catalog(folder)
    >>> lake.list_tables()
    []
    >>> prod = lh.load_catalog("prod", type="sql", uri=f"sqlite:///{folder}/x.db", warehouse=folder)
    >>> prod.name
    'prod'

    The configuration is `.pyiceberg.yaml` (in `PYICEBERG_HOME`, the home directory or the working
    directory) and variables such as `PYICEBERG_CATALOG__PROD__URI`; arguments override it. A name
    that is not configured is a folder of the working directory.

    Args:
        catalog: "file:///data/warehouse" or a path (a folder with tables), "s3://bucket/prefix",
            "sqlite:///path.db", "postgresql+psycopg://...", "https://..." (REST), "hms://host:9083"
            (Hive Metastore), "glue://REGION"; or a name. A `pathlib.Path` is a folder.
        uri: the location, if `catalog` is a name or is left out.
        warehouse: location of new tables, for catalogs that are not folders.
        name: the catalog's name, part of a SQL catalog's key; by default the configured one, or
            "lakehouse".
        environment: clock, ids and randomness; by default the real ones.
        properties: options of storage and catalog, such as `s3.endpoint`; `type` may be "sql",
            "rest", "hive" or "glue"; `branch`: the lake seen from that branch; `at`: a version of
            the lake ("41") or a time, to be read.

    Raises:
        InvalidInputError: a type that is not supported, a missing URI or warehouse, or a
            configuration that cannot be read.
    """
    chosen = choose_catalog(
        catalog if catalog is None or isinstance(catalog, str) else str(Path(catalog).absolute()),
        uri=uri,
        warehouse=None if warehouse is None else os.fspath(warehouse),
        name=name,
        properties=properties,
    )
    options = dict(chosen.properties)
    branch, at = options.pop("branch", None), options.pop("at", None)
    opened = open_catalog(
        chosen.uri,
        warehouse=chosen.warehouse,
        name=chosen.name,
        environment=environment,
        **options,
    )
    lake = Lakehouse(DeltaFollowedCatalog(opened), environment)
    lake = lake.on_branch(branch) if branch else lake
    return lake.as_of(at) if at else lake


def _namespace(namespace: str | tuple[str, ...]) -> tuple[str, ...]:
    return split_name(namespace) if isinstance(namespace, str) else namespace
