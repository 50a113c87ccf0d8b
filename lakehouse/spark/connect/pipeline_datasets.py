"""The datasets of a Spark Declarative Pipeline, and what each is computed from, as JSON.

Usage: SPARK_REMOTE=sc://HOST:PORT python -m lakehouse.spark.connect.pipeline_datasets SPEC

Spark's own dry run names neither. The project is loaded as `spark-pipelines` loads it, and each
query is looked at; none runs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sqlglot
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.cli import PipelineSpec, load_pipeline_spec, register_definitions
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import SparkSession
from sqlglot import exp

_KINDS = {
    MaterializedView: "materialized_view",
    StreamingTable: "streaming_table",
    Sink: "sink",
}

_VIEW = "temporary_view"
_SQL_KINDS = {
    exp.MaterializedProperty: "materialized_view",
    exp.StreamingTableProperty: "streaming_table",
}
_FLOW = re.compile(
    r"CREATE\s+FLOW\s+\S+(?:\s+COMMENT\s+'[^']*')?\s+AS\s+(INSERT\s+INTO\s+\S+)\s+BY\s+NAME\b",
    re.IGNORECASE,
)
"""What is before the query of a flow in SQL, which sqlglot does not parse."""


@dataclass
class Dataset:
    """A dataset of a pipeline.

    Attributes:
        name: in full, with the catalog.
        kind: `materialized_view`, `streaming_table`, `sink` or `temporary_view`.
        comment: what its author says of it.
        source: the file that defines it.
        inputs: names in full of what its queries read, sorted.
    """

    name: str
    kind: str
    comment: str = ""
    source: str = ""
    inputs: list[str] = field(default_factory=list)


class _Registry(GraphElementRegistry):
    """Keeps what a project defines."""

    def __init__(self, spark: SparkSession, spec: PipelineSpec, graph: str) -> None:
        self.by_name: dict[str, Dataset] = {}
        self.inputs: dict[str, set[str]] = {}
        self._spark = spark
        self._client: Any = spark.client
        self._graph = graph
        self._defaults = (spec.catalog or "spark_catalog", spec.database or "default")

    def register_output(self, output: Output) -> None:
        kind = _KINDS.get(type(output), _VIEW)
        name = self._full(output.name)
        source = output.source_code_location.filename if output.source_code_location else ""
        self.by_name[name] = Dataset(name, kind, output.comment or "", source)

    def register_flow(self, flow: Flow) -> None:
        with add_pipeline_analysis_context(self._spark, self._graph, flow.name):
            frame: Any = flow.func()  # `spark.sql` is not analyzed in it
        plan = frame._plan.to_proto(self._client)
        self._reads(flow.target, set(_names(plan)))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        self._reads(flow.target, {flow.source})

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        for statement in sqlglot.parse(_FLOW.sub(r"\1", sql_text), dialect="databricks"):
            if not isinstance(statement, exp.Create | exp.Insert):
                continue
            head = statement.this
            target = _dotted(head if isinstance(head, exp.Table) else head.find(exp.Table))
            self._reads(target, _tables(statement) - {target})
            if isinstance(statement, exp.Create):
                kind = next(
                    (kind for node, kind in _SQL_KINDS.items() if statement.find(node)), _VIEW
                )
                name = self._full(target)
                self.by_name[name] = Dataset(name, kind, source=str(file_path))

    def datasets(self) -> list[Dataset]:
        """All, by name; what a temporary view reads is read by whoever reads the view."""
        for name, dataset in self.by_name.items():
            dataset.inputs = sorted(self._read_by(name, set()) - {name})
        return [self.by_name[name] for name in sorted(self.by_name)]

    def _read_by(self, name: str, seen: set[str]) -> set[str]:
        out = set()
        for read in self.inputs.get(name, set()) - seen:
            known = self.by_name.get(read)
            if known is not None and known.kind == _VIEW:
                out |= self._read_by(read, {*seen, read})
            else:
                out.add(read)
        return out

    def _reads(self, target: str, names: set[str]) -> None:
        self.inputs.setdefault(self._full(target), set()).update(map(self._full, names))

    def _full(self, name: str) -> str:
        parts = [part.strip("`") for part in name.split(".")]
        return ".".join([*self._defaults[: 3 - len(parts)], *parts])


def _names(message: Any) -> Iterator[str]:
    """Tables that a plan of Spark Connect names, in SQL too."""
    for known, value in message.ListFields():
        if known.name == "unparsed_identifier":
            yield value
        elif known.name == "query" and isinstance(value, str):
            for statement in sqlglot.parse(value, dialect="databricks"):
                yield from _tables(statement)
        elif known.message_type is not None:
            many = value.values() if hasattr(value, "values") else value
            for item in many if hasattr(many, "__iter__") else (value,):
                if hasattr(item, "ListFields"):
                    yield from _names(item)


def _tables(statement: Any) -> set[str]:
    if statement is None:
        return set()
    own = {cte.alias_or_name for cte in statement.find_all(exp.CTE)}
    return {_dotted(table) for table in statement.find_all(exp.Table)} - own


def _dotted(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


def main(spec_path: str) -> None:
    """Print the datasets of a project as JSON, in the last line."""
    path = Path(spec_path).resolve()
    spec = load_pipeline_spec(path)
    spark = SparkSession.builder.getOrCreate()
    try:
        graph = create_dataflow_graph(
            spark,
            default_catalog=spec.catalog,
            default_database=spec.database,
            sql_conf=spec.configuration,
        )
        registry = _Registry(spark, spec, graph)
        register_definitions(path, registry, spec, spark, graph)
        datasets = [asdict(dataset) for dataset in registry.datasets()]
    finally:
        spark.stop()
    sys.stdout.write("\n" + json.dumps(datasets) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except PySparkException as error:
        sys.exit(str(error))
