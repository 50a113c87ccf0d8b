"""Statements from any of the forms that they are written in: ours, OSI, dbt's `schema.yml`.

dbt's descriptions are statements, its data tests their evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import TableNames
from lakehouse.semantics.osi import parse_osi
from lakehouse.semantics.statement_yaml import draft_of, parse_statements
from lakehouse.semantics.statements import Draft
from lakehouse.spec.identifier import split_name

_DBT = {"models", "sources", "seeds", "snapshots"}


def parse_any(text: str, where: str, tables: Mapping[str, TableNames]) -> list[Draft]:
    """Drafts of a text, by what its keys are. JSON is YAML.

    Args:
        text: one file.
        where: names it in messages.
        tables: of the catalog, by dotted name.

    Raises:
        InvalidStatementError: none of the forms.
    """
    try:
        first = next(
            (document for document in yaml.safe_load_all(text) if document is not None), None
        )
    except yaml.YAMLError as error:
        raise InvalidStatementError(
            f"{where} is no YAML: {' '.join(str(error).split())}"
        ) from error
    if isinstance(first, Mapping):
        if "semantic_model" in first or "datasets" in first:
            return parse_osi(first, where, tables)
        if _DBT & set(first):
            return parse_dbt_schema(first, where, tables)
    return parse_statements(text, where)


_REF = re.compile(r"(?:ref|source)\((.*)\)")
_PERIODS = {"minute": "m", "hour": "h", "day": "d"}


def parse_dbt_schema(
    content: Mapping[str, Any], where: str, tables: Mapping[str, TableNames]
) -> list[Draft]:
    """Drafts of models, seeds, snapshots and sources.

    Args:
        content: the file as plain values.
        where: names it in messages.
        tables: of the catalog, by dotted name. A model is the table of its name in any namespace, a
            source that of schema and name.

    Raises:
        InvalidStatementError: a model or source that is no table of the catalog, or more than one.
    """
    drafts: list[Draft] = []
    for group in ("models", "seeds", "snapshots"):
        for model in content.get(group) or []:
            name = str(model.get("config", {}).get("alias") or model["name"])
            drafts += _resource(model, _table(name, tables, where), where, tables)
    for source in content.get("sources") or []:
        schema = str(source.get("schema") or source["name"])
        for entry in source.get("tables") or []:
            table = _table(f"{schema}.{entry.get('identifier') or entry['name']}", tables, where)
            merged = {
                key: entry.get(key, source.get(key)) for key in ("freshness", "loaded_at_field")
            }
            drafts += _resource({**entry, **merged}, table, where, tables)
    return drafts


def _table(name: str, tables: Mapping[str, TableNames], where: str) -> str:
    if name in tables:
        return name
    candidates = [table for table in tables if split_name(table)[-1] == split_name(name)[-1]]
    if len(candidates) != 1:
        what = f"tables {', '.join(sorted(candidates))} are meant" if candidates else "no table is"
        raise InvalidStatementError(f"{where}: by {name!r} {what}")
    return candidates[0]


def _resource(
    resource: Mapping[str, Any], table: str, where: str, tables: Mapping[str, TableNames]
) -> Iterator[Draft]:
    common = {"table": table, "source": where}
    if resource.get("description"):
        yield draft_of({**common, "kind": "description", "text": resource["description"]}, where)
    owner = (resource.get("meta") or resource.get("config", {}).get("meta") or {}).get("owner")
    if owner:
        yield draft_of({**common, "kind": "owner", "owner": str(owner)}, where)
    yield from _freshness(resource, common, where)
    for column in resource.get("columns") or []:
        about = {**common, "column": column["name"]}
        if column.get("description"):
            yield draft_of({**about, "kind": "description", "text": column["description"]}, where)
        for test in column.get("data_tests") or column.get("tests") or []:
            written = _test(test, column["name"], where, tables)
            if written is not None:
                place = common if written["kind"] in ("grain", "join") else about
                yield draft_of({**place, **written}, where)


def _freshness(
    resource: Mapping[str, Any], common: Mapping[str, Any], where: str
) -> Iterator[Draft]:
    limits = resource.get("freshness") or {}
    limit = limits.get("error_after") or limits.get("warn_after") or {}
    column, count = resource.get("loaded_at_field"), limit.get("count")
    if column and count and limit.get("period") in _PERIODS:
        span = f"{count}{_PERIODS[limit['period']]}"
        evidence = {"check": "newest", "column": column, "within": span}
        yield draft_of(
            {**common, "kind": "freshness", "column": column, "sla": span, "evidence": evidence},
            where,
        )


def _test(
    test: Any, column: str, where: str, tables: Mapping[str, TableNames]
) -> dict[str, Any] | None:
    """A statement with the test as its evidence; None for a test without a matching check."""
    name, body = (test, {}) if isinstance(test, str) else next(iter(test.items()))
    body = body or {}
    arguments = body.get("arguments", body)
    condition = (body.get("config") or {}).get("where") or body.get("where")
    where_part = {"where": condition} if condition else {}
    if name == "unique":
        evidence = {"check": "unique", "columns": [column], **where_part}
        return {"kind": "grain", "key": [column], "evidence": evidence}
    if name == "not_null":
        evidence = {"check": "null_share", "column": column, **where_part}
        return {"kind": "warning", "text": "Never null.", "evidence": evidence}
    if name == "accepted_values":
        values = list(arguments["values"])
        evidence = {"check": "values", "column": column, "allowed": values, **where_part}
        return {"kind": "codes", "values": {v: str(v) for v in values}, "evidence": evidence}
    if name == "relationships":
        match = _REF.search(str(arguments["to"]))
        parts = re.findall(r"['\"]([^'\"]+)['\"]", match.group(1) if match else "")
        other = _table(".".join(parts[-2:]) or str(arguments["to"]), tables, where)
        far = f"{other}.{arguments['field']}"
        evidence = {"check": "references", "column": column, "to": far, **where_part}
        claim = {"from": [column], "to": [far], "cardinality": "many_to_one"}
        return {"kind": "join", **claim, "evidence": evidence}
    return None
