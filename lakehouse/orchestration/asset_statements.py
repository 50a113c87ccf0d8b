"""Statements from what Dagster's assets say: descriptions, owners, columns, freshness.

A column's constraints become evidence: what Dagster shows of them nobody checks.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import TableNames
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Draft

_COLUMNS, _TABLE = "dagster/column_schema", "dagster/table_name"


def specs_of_file(file: Path) -> list[dg.AssetSpec]:
    """The assets of a Python file's definitions; the file is run.

    Raises:
        InvalidStatementError: it cannot be run, or has no assets.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidStatementError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidStatementError(
            f"{file} cannot be run: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    specs = {spec.key: spec for value in vars(module).values() for spec in _specs(value)}
    if not specs:
        raise InvalidStatementError(f"{file} has no Dagster assets or definitions of them")
    return list(specs.values())


def drafts_of_assets(
    specs: Iterable[dg.AssetSpec], tables: Mapping[str, TableNames], where: str
) -> list[Draft]:
    """Drafts about the tables that the assets are; assets that are no table are passed over.

    Args:
        specs: of the assets. The metadata `dagster/table_name` names the table, with or without a
            database before it, else the asset's key does.
        tables: of the catalog, by dotted name.
        where: names them in messages.
    """
    return [
        draft_of({"table": table, "source": where, **written}, where)
        for spec in specs
        if (table := _table(spec, tables)) is not None
        for written in _said(spec)
    ]


def _specs(value: object) -> Iterable[dg.AssetSpec]:
    if isinstance(value, dg.Definitions):
        return value.resolve_all_asset_specs()
    if isinstance(value, dg.AssetsDefinition):
        return value.specs
    return [value] if isinstance(value, dg.AssetSpec) else []


def _table(spec: dg.AssetSpec, tables: Mapping[str, TableNames]) -> str | None:
    named = spec.metadata.get(_TABLE)
    text = str(getattr(named, "value", named)) if named is not None else ".".join(spec.key.path)
    parts = text.split(".")
    tried = (".".join(parts[at:]) for at in range(len(parts)))
    return next((name for name in tried if name in tables), None)


def _said(spec: dg.AssetSpec) -> Iterator[dict[str, Any]]:
    if spec.description:
        yield {"kind": "description", "text": spec.description}
    if spec.owners:
        yield {"kind": "owner", "owner": ", ".join(spec.owners)}
    policy = spec.freshness_policy
    window = getattr(policy, "fail_window", None)
    if window is not None:
        seconds = int(window.to_timedelta().total_seconds())
        yield {"kind": "freshness", "sla": f"{seconds / 3600:g}h"}
    shown = spec.metadata.get(_COLUMNS)
    schema = getattr(shown, "schema", shown)
    if not isinstance(schema, dg.TableSchema):
        return
    for column in schema.columns:
        yield from _column(column)
    for rule in schema.constraints.other if schema.constraints else ():
        yield {"kind": "warning", "text": rule}


def _column(column: dg.TableColumn) -> Iterator[dict[str, Any]]:
    name, rules = column.name, column.constraints
    if column.description:
        yield {"kind": "description", "column": name, "text": column.description}
    if rules.unique:
        evidence = {"check": "unique", "columns": [name]}
        yield {"kind": "grain", "key": [name], "evidence": evidence}
    if not rules.nullable:
        evidence = {"check": "null_share", "column": name}
        yield {"kind": "warning", "column": name, "text": "Never null.", "evidence": evidence}
    for rule in rules.other:
        yield {"kind": "warning", "column": name, "text": rule}
