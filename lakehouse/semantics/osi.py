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
_NAME = re.compile(r"[\"`]([^\"`]+)[\"`]|([^.\"`]+)")
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
    joined = {
        table
        for statement in served
        if statement.kind is Kind.JOIN
        for table, _ in _far(statement, schemas)
    }
    tables = sorted(({draft.table for draft, _ in stated} | joined) & set(schemas))
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
        sources = {dataset["name"]: _source(dataset, tables) for dataset in model["datasets"]}
        own_drafts = [
            statement
            for dataset in model["datasets"]
            for statement in _own_statements(dataset, where)
        ]
        if own_drafts:
            drafts += own_drafts
            continue
        foreign = _Foreign(
            sources, {dataset["name"]: _fields(dataset) for dataset in model["datasets"]}, where
        )
        for dataset in model["datasets"]:
            drafts += foreign.dataset(dataset)
        drafts += [
            foreign.relationship(relationship) for relationship in model.get("relationships") or []
        ]
        drafts += [foreign.metric(metric) for metric in model.get("metrics") or []]
    return drafts


def identifier(text: str) -> str:
    """A name that every reader of the format takes: lower case, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"


# Writing


def _dataset(
    table: str, schema: Schema, served: Sequence[Draft], stated: Sequence[Stated]
) -> dict[str, Any]:
    of_dataset = [statement for statement in served if statement.table == table]
    of_table = [statement for statement in of_dataset if statement.column is None]
    grain = next((statement for statement in of_table if statement.kind is Kind.GRAIN), None)
    key = None if grain is None or grain.claim.get("repeats") else grain.claim["key"]
    dataset = {
        "name": identifier(table),
        "source": table,
        "primary_key": key,
        "description": _text(of_table, Kind.DEPRECATION, Kind.DESCRIPTION, Kind.GRAIN),
        "ai_context": _context(of_table),
        "fields": [
            _field(field, [draft for draft in of_dataset if draft.column == field.name])
            for field in schema.fields
        ],
        "custom_extensions": [_extension(stated)],
    }
    return {name: value for name, value in dataset.items() if value}


def _field(field: NestedField, about: Sequence[Draft]) -> dict[str, Any]:
    datatype = _datatype(field.field_type)
    label = next((d.claim["label"] for d in about if d.claim.get("label")), None)
    written = {
        "name": field.name,
        "expression": expression(field.name),
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


def expression(sql: str) -> dict[str, Any]:
    """SQL as the format has it."""
    return {"dialects": [{"dialect": "ANSI_SQL", "expression": sql}]}


def _text(drafts: Sequence[Draft], *kinds: Kind) -> str | None:
    texts = [draft.text for kind in kinds for draft in drafts if draft.kind is kind and draft.text]
    return " ".join(texts) or None


def _context(drafts: Sequence[Draft]) -> dict[str, Any] | None:
    words = [w for draft in drafts if draft.kind is Kind.SYNONYMS for w in draft.claim["words"]]
    rules = (Kind.FILTER, Kind.FRESHNESS, Kind.WARNING, Kind.VALIDITY, Kind.ABSENCE)
    instructions = _text(drafts, *rules)
    context = {"instructions": instructions, "synonyms": words}
    return {name: value for name, value in context.items() if value} or None


def _far(join: Draft, schemas: Mapping[str, Schema]) -> list[tuple[str, str]]:
    """(table, column) of what a join leads to."""
    return [split_column(column, join.table, schemas) for column in join.claim["to"]]


def _relationships(
    served: Sequence[Draft], schemas: Mapping[str, Schema]
) -> Iterator[dict[str, Any]]:
    for statement in served:
        if statement.kind is not Kind.JOIN:
            continue
        far = _far(statement, schemas)
        if far[0][0] not in schemas or statement.table not in schemas:
            continue
        yield {
            "name": identifier(
                f"{statement.table} {' '.join(statement.claim['from'])} {far[0][0]}"
            ),
            "from": identifier(statement.table),
            "to": identifier(far[0][0]),
            "from_columns": list(statement.claim["from"]),
            "to_columns": [column for _, column in far],
        }


def _metrics(served: Sequence[Draft], schemas: Mapping[str, Schema]) -> Iterator[dict[str, Any]]:
    for statement in served:
        if statement.kind is Kind.METRIC and statement.table in schemas:
            words = [str(statement.claim["name"]), *statement.claim.get("words", [])]
            yield {
                "name": identifier(str(statement.claim["name"])),
                "expression": expression(
                    _qualified(str(statement.claim["expression"]), statement.table)
                ),
                "description": statement.text or str(statement.claim["name"]),
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
    """The table of a dataset: by its source, quoted or not, with or without a database before."""
    source = str(dataset.get("source", ""))
    parts = [quoted or plain for quoted, plain in _NAME.findall(source)]
    return next(
        (".".join(parts[at:]) for at in range(len(parts)) if ".".join(parts[at:]) in tables), source
    )


def extended_statements(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The statements in the extensions of a dataset, as they are written there."""
    for extension in dataset.get("custom_extensions") or []:
        try:
            data = json.loads(extension.get("data", "{}"))
        except json.JSONDecodeError:
            continue  # another vendor's
        ours = data.get(_EXTENSION) if isinstance(data, Mapping) else None
        yield from ours.get("statements", []) if isinstance(ours, Mapping) else []


def _own_statements(dataset: Mapping[str, Any], where: str) -> Iterator[Draft]:
    for statement in extended_statements(dataset):
        yield draft_of(
            {k: v for k, v in statement.items() if k not in ("state", "state_reason")}, where
        )


def _fields(dataset: Mapping[str, Any]) -> dict[str, str]:
    """Field -> the SQL that it is."""
    return {
        field["name"]: str(
            (field.get("expression", {}).get("dialects") or [{}])[0].get(
                "expression", field["name"]
            )
        )
        for field in dataset.get("fields") or []
    }


@dataclass(frozen=True, slots=True)
class _Foreign:
    """Reads the standard fields of a document that another program wrote.

    Attributes:
        sources: dataset -> table.
        fields: dataset -> field -> SQL; what is no field is SQL itself.
        where: names the document in messages.
    """

    sources: Mapping[str, str]
    fields: Mapping[str, Mapping[str, str]]
    where: str

    def dataset(self, dataset: Mapping[str, Any]) -> Iterator[Draft]:
        """Its descriptions, synonyms, instructions and key."""
        name = dataset["name"]

        def draft(**written: Any) -> Draft:
            common = {"table": self.sources[name], "source": self.where}
            return draft_of({**common, **written}, self.where)

        yield from _described(dataset, draft)
        # where what is made of columns is unique, they are
        keys = [self._sql(name, column) for column in dataset.get("primary_key") or ()]
        key = list(
            dict.fromkeys(c.name for tree in keys for c in tree.find_all(exp.Column, bfs=False))
        )
        if key:
            evidence = {"check": "unique", "columns": key}
            yield draft(kind="grain", key=key, evidence=evidence)
        for field in dataset.get("fields") or []:
            column = self._column(name, field["name"])
            if column is not None:
                yield from _described(field, lambda c=column, **w: draft(column=c, **w))

    def relationship(self, relationship: Mapping[str, Any]) -> Draft:
        """A join with the reference as its evidence."""
        try:
            table, other = self.sources[relationship["from"]], self.sources[relationship["to"]]
            near_columns = [
                self._column(relationship["from"], column)
                for column in relationship["from_columns"]
            ]
            far = [
                self._column(relationship["to"], column) for column in relationship["to_columns"]
            ]
        except KeyError as error:
            raise InvalidStatementError(
                f"{self.where}: a relationship lacks or misnames {error}"
            ) from error
        if None in near_columns or None in far:
            raise InvalidStatementError(
                f"{self.where}: {relationship['from']} is joined to {relationship['to']} by what "
                "is no column"
            )
        to = [f"{other}.{column}" for column in far]
        evidence = {"check": "references", "column": near_columns[0], "to": to[0]}
        return draft_of(
            {
                "table": table,
                "kind": "join",
                "from": near_columns,
                "to": to,
                "cardinality": "many_to_one",
                "source": self.where,
                **({"evidence": evidence} if len(near_columns) == 1 else {}),
            },
            self.where,
        )

    def metric(self, metric: Mapping[str, Any]) -> Draft:
        """Its expression under the tables' own names."""
        dialects = metric.get("expression", {}).get("dialects") or [{}]
        tree = sqlglot.parse_one(str(dialects[0].get("expression", "")))
        owners = [c.table for c in tree.find_all(exp.Column) if c.table in self.sources]
        first = owners[0] if owners else next(iter(self.sources))
        table = self.sources[first]
        for column in tree.find_all(exp.Column):
            dataset = column.table if column.table in self.sources else first
            name = self._column(dataset, column.name) or column.name
            owner = self.sources[dataset]
            column.replace(
                exp.column(name) if owner == table else sqlglot.parse_one(f"{owner}.{name}")
            )
        return draft_of(
            {
                "table": table,
                "kind": "metric",
                "name": metric.get("name"),
                "expression": tree.sql(),
                "text": metric.get("description") or "",
                "source": self.where,
            },
            self.where,
        )

    def _column(self, dataset: str, field: str) -> str | None:
        """The column that a field is; None for one that is computed."""
        tree = self._sql(dataset, field)
        return tree.name if isinstance(tree, exp.Column) else None

    def _sql(self, dataset: str, field: str) -> exp.Expr:
        sql = self.fields[dataset].get(field, field)
        try:
            return sqlglot.parse_one(sql)
        except sqlglot.errors.SqlglotError as error:
            raise InvalidStatementError(
                f"{self.where}: {field} of {dataset} is no SQL: {sql[:80]!r}"
            ) from error


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
