"""Statements from any of the forms that they are written in: ours, OSI, dbt's schema.yml."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import TableNames
from lakehouse.semantics.dbt_schema import parse_dbt_schema
from lakehouse.semantics.osi import parse_osi
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.semantics.statements import Draft

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
        first = next((one for one in yaml.safe_load_all(text) if one is not None), None)
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
