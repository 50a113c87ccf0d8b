"""View metadata as a JSON file (spec: View Spec, Appendix A)."""

from __future__ import annotations

from typing import Any

import orjson

from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.spec.json_fields import (
    optional_str,
    require_int,
    require_list,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.metadata.metadata_json import compressed, inflated
from lakehouse.spec.schema.schema_json import schema_from_json, schema_to_json
from lakehouse.spec.views.view_metadata import (
    OtherRepresentation,
    Representation,
    SqlRepresentation,
    VersionLogEntry,
    ViewMetadata,
    ViewVersion,
)

FORMAT_VERSION = 1
BEGINNING = b'{"view-uuid":'
"""How every file begins that is written here."""
_KNOWN = frozenset(
    {
        "view-uuid",
        "format-version",
        "location",
        "schemas",
        "current-version-id",
        "versions",
        "version-log",
        "properties",
    }
)


def parse_view(data: bytes, location: str) -> ViewMetadata:
    """Read a metadata file of a view, gzip or not.

    Args:
        data: content of the file.
        location: where it came from, for messages.

    Raises:
        CorruptMetadataError: it is not what the spec says.
        UnsupportedFeatureError: a format version after 1.
    """
    try:
        document = orjson.loads(inflated(data, location))
    except orjson.JSONDecodeError as error:
        raise CorruptMetadataError(f"{location}: not JSON: {error}") from error
    return view_from_json(document, location)


def serialize_view(metadata: ViewMetadata, *, codec: str = "none") -> bytes:
    """The metadata file of a view; `codec` is "none" or "gzip"."""
    return compressed(orjson.dumps(view_to_json(metadata)), codec)


def view_from_json(document: Any, where: str = "view") -> ViewMetadata:
    """Read the spec's JSON object. Raises what `parse_view` raises."""
    version = require_int(document, "format-version", where)
    if version != FORMAT_VERSION:
        raise UnsupportedFeatureError(
            f"{where}: views of format version {version} are not read; 1 is known."
        )
    metadata = ViewMetadata(
        view_uuid=require_str(document, "view-uuid", where),
        location=require_str(document, "location", where),
        schemas=tuple(
            schema_from_json(schema, f"{where}: schemas")
            for schema in _list(document, "schemas", where)
        ),
        current_version_id=require_int(document, "current-version-id", where),
        versions=tuple(
            version_from_json(version, f"{where}: versions")
            for version in _list(document, "versions", where)
        ),
        version_log=tuple(
            VersionLogEntry(
                require_int(entry, "timestamp-ms", f"{where}: version-log"),
                require_int(entry, "version-id", f"{where}: version-log"),
            )
            for entry in _list(document, "version-log", where)
        ),
        properties=string_map(document.get("properties"), f"{where}: properties"),
        extra={key: value for key, value in document.items() if key not in _KNOWN},
    )
    _check_whole(metadata, where)
    return metadata


def view_to_json(metadata: ViewMetadata) -> dict[str, Any]:
    """The JSON object of the spec."""
    return {
        "view-uuid": metadata.view_uuid,
        "format-version": FORMAT_VERSION,
        "location": metadata.location,
        "properties": dict(metadata.properties),
        "schemas": [schema_to_json(schema) for schema in metadata.schemas],
        "current-version-id": metadata.current_version_id,
        "versions": [version_to_json(version) for version in metadata.versions],
        "version-log": [
            {"timestamp-ms": entry.timestamp_ms, "version-id": entry.version_id}
            for entry in metadata.version_log
        ],
        **metadata.extra,
    }


def version_from_json(document: Any, where: str = "view-version") -> ViewVersion:
    """Read one version (spec: Versions). Raises CorruptMetadataError naming `where`."""
    namespace = _list(document, "default-namespace", where)
    if not all(isinstance(level, str) for level in namespace):
        raise CorruptMetadataError(f"{where}.default-namespace: expected a list of strings.")
    return ViewVersion(
        version_id=require_int(document, "version-id", where),
        schema_id=require_int(document, "schema-id", where),
        timestamp_ms=require_int(document, "timestamp-ms", where),
        representations=tuple(
            _representation(representation, f"{where}.representations")
            for representation in _list(document, "representations", where)
        ),
        default_namespace=tuple(namespace),
        default_catalog=optional_str(document, "default-catalog", where),
        summary=string_map(document.get("summary"), f"{where}.summary"),
    )


def version_to_json(version: ViewVersion) -> dict[str, Any]:
    """The JSON object of the spec."""
    document: dict[str, Any] = {
        "version-id": version.version_id,
        "timestamp-ms": version.timestamp_ms,
        "schema-id": version.schema_id,
        "summary": dict(version.summary),
        "default-namespace": list(version.default_namespace),
        "representations": [representation.to_json() for representation in version.representations],
    }
    if version.default_catalog is not None:
        document["default-catalog"] = version.default_catalog
    return document


def _representation(document: Any, where: str) -> Representation:
    if require_str(document, "type", where).lower() != "sql":
        return OtherRepresentation(document)
    return SqlRepresentation(
        require_str(document, "sql", where), require_str(document, "dialect", where)
    )


def _list(document: Any, key: str, where: str) -> list[Any]:
    return require_list(require_object(document, where).get(key), f"{where}.{key}")


def _check_whole(metadata: ViewMetadata, where: str) -> None:
    versions = {version.version_id: version for version in metadata.versions}
    if len(versions) != len(metadata.versions):
        raise CorruptMetadataError(f"{where}: two versions have one id.")
    current = versions.get(metadata.current_version_id)
    if current is None:
        raise CorruptMetadataError(
            f"{where}: the current version {metadata.current_version_id} is not among its versions."
        )
    if current.schema_id not in {schema.schema_id for schema in metadata.schemas}:
        raise CorruptMetadataError(
            f"{where}: schema {current.schema_id} of the current version is not among its schemas."
        )
