"""An OSI document as dbt-core and MetricFlow take it.

They make entities, dimensions and metrics of it, and refuse a document in which one name is an
entity here and a dimension there, a dataset with dimensions lacks a key of one column, or a name
has one letter. So columns are called after their dataset, keys and references after the dataset
that they identify, and a key of several columns becomes an expression of one. What they have no
place for, or would read as something else, is left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from lakehouse.errors import InvalidInputError
from lakehouse.semantics.osi import OsiDocument, expression, extended_statements, identifier

_AGGREGATES = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)


@dataclass(frozen=True, slots=True)
class ForDbt:
    """The document, and what is not in it.

    Attributes:
        document: names datasets by database, schema and name, as dbt's models are named.
        left_out: a sentence each.
    """

    document: OsiDocument
    left_out: Sequence[str]


def for_dbt(document: OsiDocument, database: str) -> ForDbt:
    """The document for a dbt project whose models are the tables.

    Statements of ours stay in it whole, in its extensions.

    Args:
        document: as `osi.osi_document` makes it.
        database: the one that dbt's models are in; their schemas are our namespaces.

    Raises:
        InvalidInputError: the database has no name.
    """
    if not database:
        raise InvalidInputError("dbt looks models up by their database: it needs a name.")
    left_out: list[str] = []
    models = [
        _Model(model, database, left_out).written() for model in document.content["semantic_model"]
    ]
    return ForDbt(OsiDocument({**document.content, "semantic_model": models}), left_out)


class _Model:
    """One semantic model, changed dataset by dataset."""

    def __init__(self, model: Mapping[str, Any], database: str, left_out: list[str]) -> None:
        self._model, self._database, self._left_out = model, database, left_out
        self._datasets = {
            dataset["name"]: dataset for dataset in model["datasets"] if self._has_a_place(dataset)
        }
        self._references = dict(self._kept_references())

    def _has_a_place(self, dataset: Mapping[str, Any]) -> bool:
        """Whether a dbt model can be the table: a schema is a namespace of one level."""
        is_qualified: bool = dataset["source"].count(".") == 1
        if not is_qualified:
            self._left_out.append(f"dataset {dataset['name']}: its namespace has several levels")
        return is_qualified

    def written(self) -> dict[str, Any]:
        """The model."""
        parts = {
            "datasets": [self._dataset(dataset) for dataset in self._datasets.values()],
            "relationships": [
                {**reference, "from_columns": [reference["to"]], "to_columns": [reference["to"]]}
                for reference in self._references.values()
            ],
            "metrics": list(self._metrics()),
        }
        return {**self._model, **parts}

    def _kept_references(self) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
        """(dataset, column) -> relationship, of those that join one column to the other's key."""
        taken: set[tuple[str, str]] = set()
        for relationship in self._model.get("relationships", ()):
            here, target = relationship["from"], relationship["to"]
            if not {here, target} <= self._datasets.keys():
                self._left_out.append(
                    f"relationship {relationship['name']}: a dataset of it is left out"
                )
                continue
            columns, key = relationship["from_columns"], self._datasets[target].get("primary_key")
            if relationship["to_columns"] != key or len(columns) != 1:
                why = "it does not join one column to a key of one"
            elif columns == self._datasets[here].get("primary_key"):
                why = "its column is the key of both"
            elif here == target:
                why = "it joins a dataset to itself"
            elif {(here, target), (here, columns[0])} & taken:
                why = "there is another of the same dataset or column"
            else:
                taken |= {(here, target), (here, columns[0])}
                yield (here, columns[0]), relationship
                continue
            self._left_out.append(f"relationship {relationship['name']}: {why}")

    def _dataset(self, dataset: Mapping[str, Any]) -> dict[str, Any]:
        name, key = dataset["name"], list(dataset.get("primary_key") or ())
        fields = []
        for field in dataset.get("fields", ()):
            column = field["name"]
            reference = self._references.get((name, column))
            if [column] == key:
                fields.append({**field, "name": name})
            elif reference is not None:
                fields.append({**field, "name": reference["to"]})
            elif key:
                fields.append({**field, "name": identifier(f"{name}_{column}")})
        if len(key) > 1:
            whole = " || '|' || ".join(f"CAST({column} AS VARCHAR)" for column in key)
            fields.append({"name": name, "expression": expression(whole), "datatype": "String"})
        if not key:
            self._left_out.append(f"columns of {name} that are no references: it has no key")
        changed = {
            "source": f"{self._database}.{dataset['source']}",
            "primary_key": [name] if key else None,
            "fields": fields or None,
        }
        return {k: v for k, v in {**dataset, **changed}.items() if v is not None}

    def _metrics(self) -> Iterator[dict[str, Any]]:
        filtered = {
            name
            for name, dataset in self._datasets.items()
            for statement in extended_statements(dataset)
            if statement.get("kind") == "filter" and statement.get("mandatory")
        }
        for metric in self._model.get("metrics", ()):
            sql = metric["expression"]["dialects"][0]["expression"]
            dataset = self._aggregated(sql)
            if dataset is None:
                why = "it is no single aggregate of a column"
            elif dataset in filtered:
                why = f"{dataset} has filters that always hold"
            elif len(metric["name"]) < 2:
                why = "its name has one letter"
            else:
                yield metric
                continue
            self._left_out.append(f"metric {metric['name']}: {why}")

    def _aggregated(self, sql: str) -> str | None:
        """The dataset of the one column that is aggregated, or None."""
        tree = sqlglot.parse_one(sql)
        if not isinstance(tree, _AGGREGATES):
            return None
        inner = tree.this
        if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
            inner = inner.expressions[0]
        is_dataset = isinstance(inner, exp.Column) and inner.table in self._datasets
        return inner.table if is_dataset else None
