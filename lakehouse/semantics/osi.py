"""Statements as an OSI (Apache Ossie) document, version 0.1.1, and back.

Descriptions, synonyms, keys, relationships and metrics go where the format has a place for them.
Whole statements, with evidence and states, go into `custom_extensions` of each dataset: as vendor
COMMON, because the parsers of dbt-core and MetricFlow refuse vendors that they do not know.
Contradicted statements are written there only, with their state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
import yaml
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, PrimitiveType
from sqlglot import exp

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import TableNames, split_column
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.statement_yaml import draft_of
from lakehouse.semantics.statements import Draft
from lakehouse.semantics.states import Standing, State

VERSION = "0.1.1"
_EXTENSION = "lakehouse"
_SERVED = (State.VERIFIED, State.UNVERIFIED)
_TYPES = {
    "string": "String",
    "int": "Integer",
    "long": "Integer",
    "float": "Float",
    "double": "Float",
    "boolean": "Boolean",
    "date": "Date",
    "time": "Time",
    "timestamp": "DateTime",
    "timestamptz": "DateTimeTz",
}
_TIMES = ("Date", "DateTime", "DateTimeTz")

Stated = tuple[Draft, Standing]


@dataclass(frozen=True, slots=True)
class OsiDocument:
    """A document as plain values."""

    content: Mapping[str, Any]

    def to_json(self) -> str:
        """For dbt, which reads `OSI/*.json`."""
        return json.dumps(self.content, indent=2, ensure_ascii=False)

    def to_yaml(self) -> str:
        """For people, and the other readers of the format."""
        return yaml.safe_dump(dict(self.content), sort_keys=False, allow_unicode=True, width=100)


def osi_document(name: str, stated: Sequence[Stated], schemas: Mapping[str, Schema]) -> OsiDocument:
    """A document of one semantic model.

    Args:
        name: of the model.
        stated: statements under present names, with their states.
        schemas: by dotted table name; tables of statements that are gone are left out.
    """
    served = [draft for draft, standing in stated if standing.state in _SERVED]
    tables = sorted({draft.table for draft, _ in stated} & set(schemas))
    model = {
        "name": identifier(name),
        "datasets": [
            _dataset(table, schemas[table], served, [s for s in stated if s[0].table == table])
            for table in tables
        ],
        "relationships": list(_relationships(served, schemas)),
        "metrics": list(_metrics(served, schemas)),
    }
    return OsiDocument(
        {"version": VERSION, "semantic_model": [{k: v for k, v in model.items() if v}]}
    )


def parse_osi(
    content: Mapping[str, Any], where: str, tables: Mapping[str, TableNames]
) -> list[Draft]:
    """Drafts of a document: our own where it carries them, else what its standard fields say.

    Args:
        content: the document as plain values.
        where: names it in messages.
        tables: of the catalog, by dotted name.

    Raises:
        InvalidStatementError: it is not of this form.
    """
    drafts: list[Draft] = []
    models = content.get("semantic_model")
    for model in models if isinstance(models, list) else [content]:
        if not isinstance(model, Mapping) or not isinstance(model.get("datasets"), list):
            raise InvalidStatementError(f"{where}: a semantic model needs a list of datasets")
        sources = {one["name"]: _source(one, tables) for one in model["datasets"]}
        own = [one for dataset in model["datasets"] for one in _own_statements(dataset, where)]
        if own:
            drafts += own
            continue
        for dataset in model["datasets"]:
            drafts += _foreign_dataset(dataset, sources[dataset["name"]], where)
        for relationship in model.get("relationships") or []:
            drafts.append(_foreign_relationship(relationship, sources, where))
        for metric in model.get("metrics") or []:
            drafts.append(_foreign_metric(metric, sources, where))
    return drafts


def identifier(text: str) -> str:
    """A name that every reader of the format takes: lower case, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"


# Writing


def _dataset(
    table: str, schema: Schema, served: Sequence[Draft], stated: Sequence[Stated]
) -> dict[str, Any]:
    own = [one for one in served if one.table == table]
    of_table = [one for one in own if one.column is None]
    grain = next((one for one in of_table if one.kind is Kind.GRAIN), None)
    key = None if grain is None or grain.claim.get("repeats") else grain.claim["key"]
    dataset = {
        "name": identifier(table),
        "source": table,
        "primary_key": key,
        "description": _text(of_table, Kind.DEPRECATION, Kind.DESCRIPTION, Kind.GRAIN),
        "ai_context": _context(of_table),
        "fields": [
            _field(one, [draft for draft in own if draft.column == one.name])
            for one in schema.fields
        ],
        "custom_extensions": [_extension(stated)],
    }
    return {name: value for name, value in dataset.items() if value}


def _field(field: NestedField, about: Sequence[Draft]) -> dict[str, Any]:
    datatype = _datatype(field.field_type)
    label = next((d.claim["label"] for d in about if d.claim.get("label")), None)
    written = {
        "name": field.name,
        "expression": _expression(field.name),
        "dimension": {"is_time": True} if datatype in _TIMES else None,
        "datatype": datatype,
        "label": label,
        "description": _text(about, Kind.DESCRIPTION, Kind.UNIT, Kind.CODES),
        "ai_context": _context(about),
    }
    return {name: value for name, value in written.items() if value}


def _datatype(kind: IcebergType) -> str:
    if not isinstance(kind, PrimitiveType):
        return "Opaque"
    return "Decimal" if str(kind).startswith("decimal") else _TYPES.get(str(kind), "Opaque")


def _expression(sql: str) -> dict[str, Any]:
    return {"dialects": [{"dialect": "ANSI_SQL", "expression": sql}]}


def _text(drafts: Sequence[Draft], *kinds: Kind) -> str | None:
    said = [one.text for kind in kinds for one in drafts if one.kind is kind and one.text]
    return " ".join(said) or None


def _context(drafts: Sequence[Draft]) -> dict[str, Any] | None:
    words = [w for one in drafts if one.kind is Kind.SYNONYMS for w in one.claim["words"]]
    rules = (Kind.FILTER, Kind.FRESHNESS, Kind.WARNING, Kind.VALIDITY, Kind.ABSENCE)
    said = _text(drafts, *rules)
    found = {"instructions": said, "synonyms": words}
    return {name: value for name, value in found.items() if value} or None


def _relationships(
    served: Sequence[Draft], schemas: Mapping[str, Schema]
) -> Iterator[dict[str, Any]]:
    for one in served:
        if one.kind is not Kind.JOIN:
            continue
        far = [split_column(column, one.table, schemas) for column in one.claim["to"]]
        if far[0][0] not in schemas or one.table not in schemas:
            continue
        yield {
            "name": identifier(f"{one.table} {' '.join(one.claim['from'])} {far[0][0]}"),
            "from": identifier(one.table),
            "to": identifier(far[0][0]),
            "from_columns": list(one.claim["from"]),
            "to_columns": [column for _, column in far],
        }


def _metrics(served: Sequence[Draft], schemas: Mapping[str, Schema]) -> Iterator[dict[str, Any]]:
    for one in served:
        if one.kind is Kind.METRIC and one.table in schemas:
            words = [str(one.claim["name"]), *one.claim.get("words", [])]
            yield {
                "name": identifier(str(one.claim["name"])),
                "expression": _expression(_qualified(str(one.claim["expression"]), one.table)),
                "description": one.text or str(one.claim["name"]),
                "ai_context": {"synonyms": words},
            }


def _qualified(sql: str, table: str) -> str:
    """Columns by dataset: `sum(net)` -> `SUM(sales_ord_ln.net)`."""
    tree = sqlglot.parse_one(sql)
    for column in tree.find_all(exp.Column):
        owner = f"{column.db}.{column.table}" if column.db else table
        column.replace(exp.column(column.name, table=identifier(owner)))
    return tree.sql()


def _extension(stated: Sequence[Stated]) -> dict[str, str]:
    statements = [
        {**draft.to_json(), "state": str(standing.state), "state_reason": standing.reason}
        for draft, standing in stated
    ]
    data = json.dumps({_EXTENSION: {"statements": statements}}, ensure_ascii=False)
    return {"vendor_name": "COMMON", "data": data}


# Reading


def _source(dataset: Mapping[str, Any], tables: Mapping[str, TableNames]) -> str:
    """The table of a dataset: by its source, with or without a database before it."""
    source = str(dataset.get("source", ""))
    parts = source.split(".")
    return next(
        (".".join(parts[at:]) for at in range(len(parts)) if ".".join(parts[at:]) in tables), source
    )


def _own_statements(dataset: Mapping[str, Any], where: str) -> Iterator[Draft]:
    for extension in dataset.get("custom_extensions") or []:
        try:
            data = json.loads(extension.get("data", "{}"))
        except json.JSONDecodeError:
            continue  # another vendor's
        ours = data.get(_EXTENSION) if isinstance(data, Mapping) else None
        for one in ours.get("statements", []) if isinstance(ours, Mapping) else []:
            written = {k: v for k, v in one.items() if k not in ("state", "state_reason")}
            yield draft_of(written, where)


def _foreign_dataset(dataset: Mapping[str, Any], table: str, where: str) -> Iterator[Draft]:
    def draft(**written: Any) -> Draft:
        return draft_of({"table": table, "source": where, **written}, where)

    yield from _described(dataset, draft)
    if key := dataset.get("primary_key"):
        evidence = {"check": "unique", "columns": list(key)}
        yield draft(kind="grain", key=list(key), evidence=evidence)
    for field in dataset.get("fields") or []:
        yield from _described(field, lambda f=field, **w: draft(column=f["name"], **w))


def _described(thing: Mapping[str, Any], draft: Any) -> Iterator[Draft]:
    if thing.get("description") or thing.get("label"):
        label = {"label": thing["label"]} if thing.get("label") else {}
        yield draft(kind="description", text=thing.get("description") or "", **label)
    context = thing.get("ai_context")
    if isinstance(context, Mapping) and context.get("synonyms"):
        yield draft(kind="synonyms", words=list(context["synonyms"]))
    instructions = context.get("instructions") if isinstance(context, Mapping) else context
    if instructions:
        yield draft(kind="warning", text=str(instructions))


def _foreign_relationship(one: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Draft:
    try:
        table, other = sources[one["from"]], sources[one["to"]]
        columns, far = list(one["from_columns"]), [f"{other}.{c}" for c in one["to_columns"]]
    except KeyError as error:
        raise InvalidStatementError(f"{where}: a relationship lacks or misnames {error}") from error
    evidence = {"check": "references", "column": columns[0], "to": far[0]}
    return draft_of(
        {
            "table": table,
            "kind": "join",
            "from": columns,
            "to": far,
            "cardinality": "many_to_one",
            "source": where,
            **({"evidence": evidence} if len(columns) == 1 else {}),
        },
        where,
    )


def _foreign_metric(one: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Draft:
    dialects = one.get("expression", {}).get("dialects") or [{}]
    tree = sqlglot.parse_one(str(dialects[0].get("expression", "")))
    owners = [sources[c.table] for c in tree.find_all(exp.Column) if c.table in sources]
    table = owners[0] if owners else next(iter(sources.values()))
    for column in tree.find_all(exp.Column):
        owner = sources.get(column.table, table)
        column.replace(
            exp.column(column.name)
            if owner == table
            else sqlglot.parse_one(f"{owner}.{column.name}")
        )
    return draft_of(
        {
            "table": table,
            "kind": "metric",
            "name": one.get("name"),
            "expression": tree.sql(),
            "text": one.get("description") or "",
            "source": where,
        },
        where,
    )
