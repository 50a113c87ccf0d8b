"""The specification as our server is asked by it: names and ids that exist, for a good share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.openapi import filled_catalog as filled
from tests.conformance.openapi.filled_catalog import Filled

Document = dict[str, Any]
_PREFIX = "/v1/{prefix}"
_METHODS = ("get", "head", "post", "put", "delete", "patch")
_TYPES = "boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns"
_TYPES += "|timestamptz_ns|string|uuid|binary|fixed\\[(1|2|16)\\]|decimal\\((9|18|38),[0-9]\\)"
_TYPES += "|unknown|geometry|geography"
_TRANSFORMS = "identity|void|year|month|day|hour|bucket\\[(1|4|16)\\]|truncate\\[(1|16)\\]"
_COLUMN_ID = {"type": "integer", "minimum": 1, "maximum": 4}
_ONE_NAMESPACE = {"type": "string", "enum": ["kit"]}


def fitted(spec: Path, catalog: Filled) -> Document:
    """What Schemathesis is given; the file stays as it is.

    The server has no prefix. Names in paths, and some of those in bodies, become those of the
    catalog; what a request may break has names of its own, so that others keep being found.
    """
    document: Document = yaml.safe_load(spec.read_text())
    document["servers"] = [{"url": "/"}]
    document["paths"] = {
        path.replace(_PREFIX, "/v1"): item for path, item in document["paths"].items()
    }
    for path, item in document["paths"].items():
        shared = item.pop("parameters", [])
        for method in _METHODS:
            if method in item:
                _fit_parameters(document, path, method, item[method], shared)
    _fit_bodies(document["components"]["schemas"], catalog)
    # one key for many requests is refused, as it has to be
    document["components"]["parameters"]["idempotency-key"]["schema"].pop("example", None)
    return document


def _fit_parameters(
    document: Document, path: str, method: str, operation: Document, shared: Sequence[Any]
) -> None:
    known = document["components"]["parameters"]
    given = [*shared, *operation.get("parameters", [])]
    resolved = [
        known[one["$ref"].rsplit("/", 1)[1]] if "$ref" in one else dict(one) for one in given
    ]
    operation["parameters"] = [
        _fitted_parameter(one, path, method) for one in resolved if one["name"] != "prefix"
    ]


def _fitted_parameter(parameter: Document, path: str, method: str) -> Document:
    names = _names(parameter["name"], path, method) if parameter["in"] == "path" else None
    if names is None:
        return parameter
    kept = {key: value for key, value in parameter.items() if not key.startswith("example")}
    return {**kept, "schema": names}


def _names(parameter: str, path: str, method: str) -> Document | None:
    """What a part of a path is; None: what the specification says."""
    breaks = method == "delete" or path.endswith("/unregister")
    changes = method == "post" and path.endswith(("}", "/properties"))
    if parameter == "namespace":
        if breaks and path.endswith("{namespace}"):
            return _numbered("gone_", filled.EMPTY_NAMESPACES)
        if breaks and "/plan/" not in path:
            return _ONE_NAMESPACE
        return {
            "type": "string",
            "enum": ["\x1f".join(namespace) for namespace in filled.NAMESPACES],
        }
    if parameter == "table":
        if path.endswith("/unregister"):
            return _numbered("left_", filled.UNREGISTERED)
        if breaks and path.endswith("{table}"):
            return _numbered("dropped_", filled.DROPPED)
        if changes:
            return {"type": "string", "enum": [f"changed_{n}" for n in range(filled.CHANGED)]}
        return {"type": "string", "enum": list(filled.READ)}
    if parameter == "view":
        if breaks:
            return _numbered("gone_view_", filled.DROPPED_VIEWS)
        return {"type": "string", "enum": [f"view_{n}" for n in range(filled.VIEWS)]}
    return None


def _numbered(begin: str, count: int) -> Document:
    return {"type": "string", "pattern": f"^{begin}[0-{count // 10 - 1}][0-9]$"}


def _fit_bodies(schemas: Document, catalog: Filled) -> None:
    column = _one_of([*filled.SCHEMA.names, "nothing"])
    schemas["PrimitiveType"] = {"type": "string", "pattern": f"^({_TYPES})$"}
    schemas["Transform"] = {"type": "string", "pattern": f"^({_TRANSFORMS})$"}
    for name in ("TermReference", "FieldName"):
        schemas[name] = column
    # exactly one of the types, says the specification, which no number and no text can be of
    schemas["PrimitiveTypeValue"] = {"type": ["boolean", "number", "string"]}
    # filters in filters are enough: no calls of functions in them
    schemas["FunctionArgument"] = {"$ref": "#/components/schemas/Literal"}
    schemas["ScanReport"]["properties"]["filter"] = {"type": "boolean"}
    schemas["NamedReference"]["properties"]["name"] = column
    for name, key, fit in (
        ("AssertTableUUID", "uuid", _one_of(catalog.uuids)),
        ("RegisterTableRequest", "metadata-location", _one_of(catalog.metadata_locations)),
        ("PartitionField", "source-id", _COLUMN_ID),
        ("SortField", "source-id", _COLUMN_ID),
        ("ScanReport", "report-type", {"const": "scan-report"}),
        ("CommitReport", "report-type", {"const": "commit-report"}),
        ("SQLViewRepresentation", "type", {"const": "sql"}),
        ("RenameTableRequest", "source", _identifier(_numbered("named_", filled.RENAMED))),
        ("RenameTableRequest", "destination", _identifier({"type": "string"})),
    ):
        schemas[name]["properties"][key] = fit
    for name, key in (
        # what is created has a place of its own
        ("CreateTableRequest", "location"),
        ("CreateViewRequest", "location"),
        # the path says it
        ("CommitViewRequest", "identifier"),
        # a default has to fit its type
        ("StructField", "initial-default"),
        ("StructField", "write-default"),
    ):
        schemas[name]["properties"].pop(key)
    _fit_commits(schemas)
    _fit_plans(schemas, catalog)


def _fit_commits(schemas: Document) -> None:
    """Of one table the path has the name, of several the body."""
    one = schemas["CommitTableRequest"]
    name = _identifier(_one_of([f"changed_{n}" for n in range(filled.CHANGED)]))
    several = {
        **one,
        "required": [*one["required"], "identifier"],
        "properties": {**one["properties"], "identifier": name},
    }
    schemas["CommitTransactionRequest"]["properties"]["table-changes"]["items"] = several
    one["properties"].pop("identifier")


def _fit_plans(schemas: Document, catalog: Filled) -> None:
    """Of one snapshot, or between two: a request for both is none."""
    whole = schemas["PlanTableScanRequest"]
    snapshot = {"type": "integer", "format": "int64", "enum": catalog.snapshots}
    between = ("start-snapshot-id", "end-snapshot-id")
    shared = {
        key: fit for key, fit in whole["properties"].items() if key not in (*between, "snapshot-id")
    }
    schemas["PlanTableScanRequest"] = {
        "anyOf": [
            {"type": "object", "properties": {**shared, "snapshot-id": snapshot}},
            {
                "type": "object",
                "required": list(between),
                "properties": {**shared, **dict.fromkeys(between, snapshot)},
            },
        ]
    }


def _one_of(texts: Sequence[str]) -> Document:
    return {"type": "string", "enum": list(texts)}


def _identifier(name: Document) -> Document:
    return {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {"namespace": {"enum": [["kit"]]}, "name": name},
    }
