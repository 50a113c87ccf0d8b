"""A view as users meet it: its SQL by dialect, its versions, and changing both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.engines import to_schema
from lakehouse.environment import Environment
from lakehouse.errors import CommitConflictError, InvalidViewError
from lakehouse.expressions.sql.dialects import check_select, translated
from lakehouse.spec.metadata.table_updates import RemoveProperties, SetProperties
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewMetadata, ViewVersion
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate, version_updates

Sql = str | Mapping[str, str]
"""A SELECT in Spark's dialect, or SELECTs by dialect."""
SPARK = "spark"
CATALOG_NAME = "spark.catalog-name"
"""In a version's summary: the name that the catalog of the view had in the SELECT."""
_ATTEMPTS = 20


class View:
    """A view at one of its versions.

    >>> users = lake.create_view(
    ...     "raw.users",
    ...     "SELECT DISTINCT user_id FROM events",
    ...     pa.schema({"user_id": pa.int64()}),
    ... )
    >>> users
    View('raw.users', version=1, dialects=['spark'])

    Attributes:
        metadata: the view's metadata (specification: View Metadata).
        metadata_location: location of the metadata file.
    """

    def __init__(self, catalog: Catalog, stored: StoredView, environment: Environment) -> None:
        self._catalog, self._stored, self._environment = catalog, stored, environment

    def __repr__(self) -> str:
        version = self.metadata.current_version()
        dialects = sorted(version.dialects())
        return f"View({self.name!r}, version={version.version_id}, dialects={dialects})"

    @property
    def name(self) -> str:
        """The dotted name.

        >>> lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()})).name
        'raw.one'
        """
        return str(self._stored.identifier)

    @property
    def metadata(self) -> ViewMetadata:
        """The view's metadata (specification: View Metadata).

        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> view.metadata.current_version().default_namespace
        ('raw',)
        """
        return self._stored.metadata

    @property
    def metadata_location(self) -> str:
        """Location of the metadata file.

        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> view.metadata_location.endswith("/raw/one/metadata/v1.metadata.json")
        True
        """
        return self._stored.metadata_location

    @property
    def properties(self) -> Mapping[str, str]:
        """The view's properties.

        >>> schema = pa.schema({"n": pa.int32()})
        >>> lake.create_view("raw.one", "SELECT 1 AS n", schema, properties={"a": "1"}).properties
        {'a': '1'}
        """
        return self.metadata.properties

    def schema(self) -> Schema:
        """Columns of the current version.

        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> [str(field.field_type) for field in view.schema().fields]
        ['int']
        """
        return self.metadata.schema()

    def representation(self, dialect: str = SPARK) -> SqlRepresentation:
        """The SELECT in a dialect; if there is none, in Spark's, else in any other.

        >>> view = lake.create_view("raw.one", {"trino": "SELECT 1 AS n"}, more.schema)
        >>> view.representation("duckdb").dialect
        'trino'

        Raises InvalidViewError if the view has no SQL.
        """
        known = self.metadata.current_version().dialects()
        for wanted in (dialect.lower(), SPARK, *sorted(known)):
            if wanted in known:
                return known[wanted]
        raise InvalidViewError(f"View {self.name} has no SQL.", view=self.name)

    def sql(self, dialect: str = SPARK) -> str:
        """The SELECT in a dialect: as written, or translated by sqlglot from Spark's or another.

        >>> view = lake.create_view("raw.two", "SELECT 1 AS `a b`", pa.schema({"a b": pa.int32()}))
        >>> view.sql(), view.sql("duckdb")
        ('SELECT 1 AS `a b`', 'SELECT 1 AS "a b"')

        Raises InvalidViewError if it cannot be translated.
        """
        representation, wanted = self.representation(dialect), dialect.lower()
        source = representation.dialect.lower()
        if source == wanted:
            return representation.sql
        try:
            return translated(representation.sql, source, wanted)
        except InvalidViewError as error:
            raise InvalidViewError(
                f"View {self.name} has no SQL in {dialect}: {error.message}", view=self.name
            ) from error

    def replace(
        self,
        sql: Sql,
        schema: object,
        *,
        default_namespace: tuple[str, ...] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> View:
        """Replace the SELECT: a new version, on top of what others committed meanwhile.

        >>> schema = pa.schema({"n": pa.int32()})
        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", schema)
        >>> view.replace("SELECT 2 AS n", schema)
        View('raw.one', version=2, dialects=['spark'])

        Args:
            sql: as for `Lakehouse.create_view`; every dialect of the view must be given again.
            schema: of the result.
            default_namespace: for names of one part; as before by default.
            properties: set with it.

        Raises:
            NoSuchViewError: it was dropped, or another has its name.
            InvalidViewError: a dialect would be lost (`replace.drop-dialect.allowed`).
        """
        before = self.metadata.current_version()
        names = before.default_namespace if default_namespace is None else default_namespace
        version = first_version(sql, names, self._environment.now_ms())
        version = replace(version, default_catalog=before.default_catalog)
        updates = [SetProperties(properties or {}), *version_updates(to_schema(schema), version)]
        return self.change(updates)

    def update_properties(
        self, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> View:
        """Set and remove properties.

        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
        >>> view.update_properties({"comment": "one"}).properties
        {'comment': 'one'}

        Raises NoSuchViewError, InvalidPropertyError.
        """
        return self.change([SetProperties(updates or {}), RemoveProperties(tuple(removals))])

    def change(self, updates: Sequence[ViewUpdate]) -> View:
        """Apply updates to the newest version (`lakehouse.spec.views.view_updates`).

        >>> from lakehouse.spec.views.view_updates import SetCurrentViewVersion
        >>> schema = pa.schema({"n": pa.int32()})
        >>> view = lake.create_view("raw.one", "SELECT 1 AS n", schema)
        >>> view = view.replace("SELECT 2 AS n", schema)
        >>> view.change([SetCurrentViewVersion(1)]).sql()
        'SELECT 1 AS n'

        Raises CommitConflictError, CommitStateUnknownError, NoSuchViewError, InvalidInputError.
        """
        views, base = self._catalog.views, self._stored
        same = [AssertViewUUID(self.metadata.view_uuid)]
        for _ in range(_ATTEMPTS):
            try:
                done = views.commit(base, same, updates)
                return View(self._catalog, done, self._environment)
            except CommitConflictError:
                newest = views.load(base.identifier)
                if newest.metadata_location == base.metadata_location:
                    raise
                base = newest
        raise CommitConflictError(
            f"View {self.name}: others changed it first, {_ATTEMPTS} times. Try again.",
            view=self.name,
        )


def first_version(sql: Sql, default_namespace: tuple[str, ...], now_ms: int) -> ViewVersion:
    """A version as users give it. Raises InvalidViewError."""
    by_dialect = {SPARK: sql} if isinstance(sql, str) else dict(sql)
    if not by_dialect or not all(text.strip() for text in by_dialect.values()):
        raise InvalidViewError("A view needs a SELECT.")
    for dialect, text in by_dialect.items():
        check_select(text, dialect)
    return ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=now_ms,
        representations=tuple(
            SqlRepresentation(text, dialect) for dialect, text in by_dialect.items()
        ),
        default_namespace=default_namespace,
        summary={"engine-name": "lakehouse"},
    )
