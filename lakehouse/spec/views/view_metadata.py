"""View metadata (spec: View Metadata). Immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema

from lakehouse.spec.table_properties import Property, boolean, positive

STORAGE_TABLE = "lakehouse.mv.storage-table"
"""Property of a materialized view: the table that has its rows."""
OF_VIEW = "lakehouse.mv.view"
"""Property of a storage table: whose rows these are."""


@dataclass(frozen=True, slots=True)
class SqlRepresentation:
    """A SELECT that defines a view (spec: SQL representation).

    Attributes:
        sql: the statement.
        dialect: which SQL it is in, such as "spark" or "trino"; case does not matter.
    """

    sql: str
    dialect: str

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the spec."""
        return {"type": "sql", "sql": self.sql, "dialect": self.dialect}


@dataclass(frozen=True, slots=True)
class OtherRepresentation:
    """A definition of a type that is not known, kept as it was read."""

    document: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The JSON object that was read."""
        return dict(self.document)


Representation = SqlRepresentation | OtherRepresentation


@dataclass(frozen=True, slots=True)
class ViewVersion:
    """The state of a view at some point in time (spec: Versions).

    Attributes:
        version_id: counts from 1.
        schema_id: of its schema, among the view's.
        timestamp_ms: when it was made, milliseconds since the epoch.
        representations: the same definition in several dialects.
        default_namespace: for references of one part.
        default_catalog: for references without a catalog; None: the catalog that keeps the view.
        summary: about the version, such as `engine-name`.
    """

    version_id: int
    schema_id: int
    timestamp_ms: int
    representations: tuple[Representation, ...]
    default_namespace: tuple[str, ...]
    default_catalog: str | None = None
    summary: Mapping[str, str] = field(default_factory=dict)

    def says_the_same_as(self, other: ViewVersion) -> bool:
        """Whether both are equal apart from id and time."""
        return (
            self.schema_id == other.schema_id
            and self.representations == other.representations
            and self.default_namespace == other.default_namespace
            and self.default_catalog == other.default_catalog
            and dict(self.summary) == dict(other.summary)
        )

    def dialects(self) -> dict[str, SqlRepresentation]:
        """SQL by dialect in lower case."""
        known = (
            representation
            for representation in self.representations
            if isinstance(representation, SqlRepresentation)
        )
        return {representation.dialect.lower(): representation for representation in known}


@dataclass(frozen=True, slots=True)
class VersionLogEntry:
    """When a version became current (spec: Version log)."""

    timestamp_ms: int
    version_id: int


@dataclass(frozen=True, slots=True)
class ViewMetadata:
    """One metadata file of a view.

    Attributes:
        view_uuid: who it is, for life.
        location: base of its metadata files.
        schemas: all known ones.
        current_version_id: which of `versions` counts.
        versions: those that are kept.
        version_log: changes of `current_version_id`, oldest first.
        properties: of the view, such as `comment`.
        extra: keys of the file that are not known.
    """

    view_uuid: str
    location: str
    schemas: tuple[Schema, ...]
    current_version_id: int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[VersionLogEntry, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def current_version(self) -> ViewVersion:
        """The version that counts."""
        return next(
            version for version in self.versions if version.version_id == self.current_version_id
        )

    def schema(self) -> Schema:
        """The schema of the current version."""
        wanted = self.current_version().schema_id
        return next(schema for schema in self.schemas if schema.schema_id == wanted)


class ViewProperties:
    """Typed view of a view's properties.

    Reading an unusable value raises InvalidPropertyError that names the property.

    Attributes:
        raw: the properties as they are in view metadata.
    """

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw

    history_num_entries = Property(
        "version.history.num-entries",
        positive,
        10,
        "How many versions of a view are kept.",
    )
    drop_dialect_allowed = Property(
        "replace.drop-dialect.allowed",
        boolean,
        False,
        "Whether a new version may lack a dialect that the one before has.",
    )
