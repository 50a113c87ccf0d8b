"""One version of a table as Spark asks for it: facts, and the files of each query."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import TRUE, Bound, conjunction
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.planner import ScanPlan, ScanRequest, plan_scan, project_schema
from lakehouse.scan.pruning.metadata_aggregates import Aggregate
from lakehouse.scan.reports.listeners import ENGINE_SPARK, Listeners
from lakehouse.scan.scan_tasks import TaskGroup, combine
from lakehouse.spark.jvm.answers import Answers, Arguments, Raw, Verb
from lakehouse.spark.reading.catalyst_filters import translate_filters
from lakehouse.spark.reading.exact_conditions import exact_condition
from lakehouse.spark.reading.file_answer import file_answer, parquet_only
from lakehouse.spark.reading.read_options import read_options
from lakehouse.spark.reading.table_facts import FILE_HASH, table_facts
from lakehouse.spark.reading.worker_reader import read_on_workers
from lakehouse.spark.spark_types import quoted, shown_schema
from lakehouse.spec.metadata.table_metadata import types_of
from lakehouse.spec.metadata.unified_partition import metadata_columns
from lakehouse.storage.storage_protocol import Storage

logger = logging.getLogger(__name__)


class TableAnswers(Answers):
    """Answers for a table at the version and snapshot of a scan's request.

    Later commits change nothing.

    Args:
        spark: the session that reads.
        name: the table, for messages.
        request: version, snapshot and filter; every query narrows its filter.
        storage: where the files are.
        listeners: get a report of every plan.
        by_workers: whether Python workers read the files, because Spark cannot.
        schema: the columns to show; all by default.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        name: str,
        request: ScanRequest,
        storage: Storage,
        listeners: Listeners,
        *,
        by_workers: bool,
        schema: Schema | None = None,
    ) -> None:
        super().__init__(name, self._verbs_of_table())
        self._spark = spark
        self.name = name
        self.request = replace(request, select=None)
        self.storage = storage
        self.listeners = listeners
        self.by_workers = by_workers
        self.schema = schema or request.schema
        self._ahead: tuple[Bound, ScanPlan] | None = None

    def _verbs_of_table(self) -> Mapping[str, Verb]:
        return {
            "facts": self.facts,
            "plan": self.answer_plan,
            "aggregates": self.aggregates,
            "whole_files": self.whole_files,
            "rows": self.rows,
            "at": self.at,
            "options": self.options,
        }

    def facts(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """What Spark has to know of the table, as JSON."""
        return table_facts(self.name, self.request, self.schema, by_workers=self.by_workers)

    def answer_plan(self, args: Arguments, _java: object) -> Raw:
        """Which files, with these `filters` of a query (`FilterJson.java`), for these `columns`?

        Of those the ones that may have rows that meet `among`, which a query makes while it runs.
        """
        plan = self.plan(args["filters"], args.get("among", "[]"))
        parquet_only(self.name, plan)
        return Raw(file_answer(plan, args["columns"], self.request.metadata))

    def aggregates(self, args: Arguments, _java: object) -> list[int | None] | None:
        """What are these `asked` (`AnsweredScan.java`)? None: read and see.

        Over all rows, or those of the files that `filters` choose, if these are whole files.
        """
        fields = {field.name: field for field in self.schema.fields}
        asked = [Aggregate(function, fields.get(name)) for function, name in args["asked"]]
        if self.condition("[]") != TRUE or not all(aggregate.in_entries for aggregate in asked):
            return None
        metrics = any(aggregate.column is not None for aggregate in asked)
        where = self.condition(args["filters"])
        plan = plan_scan(replace(self.request, where=where, include_metrics=metrics), self.storage)
        try:
            return plan.aggregates(asked)
        except LookupError as unknown:
            logger.debug("%s: the rows are read for %s: %s", self.name, asked, unknown)
            return None

    def whole_files(self, args: Arguments, _java: object) -> bool:
        """Whether all rows of the files that `filters` choose meet the same as `predicates`."""
        exact = exact_condition(args["predicates"], self.schema)
        if exact is None or self.condition("[]") != TRUE:
            return False
        chosen = self._planned(exact)
        types = types_of(self.request.metadata)
        if not all(chosen.all_rows_match(exact, types)):
            return False
        read = self._planned(self.condition(args["filters"]))
        return len(read.files) == len(chosen.files)

    def rows(self, args: Arguments, _java: object) -> Any:
        """A frame of these `columns` of the planned files, read by Python workers."""
        plan = self.plan(args["filters"])
        splits = replace(plan.split_options, **args["splits"])
        return self.frame(list(combine(plan.tasks, splits)), args["columns"])._jdf

    def frame(self, groups: Sequence[TaskGroup], columns: Sequence[str]) -> DataFrame:
        """A frame of these columns of the groups' rows, read by Python workers."""
        read = ["_file" if name == FILE_HASH else name for name in columns]
        beside = metadata_columns(self.request.metadata, read)
        schema = project_schema(self.schema, read, beside=beside)
        shown = shown_schema(schema)
        frame = read_on_workers(self._spark(), groups, self.request, self.storage, schema, shown)
        return frame.select(*(_shown(name) for name in columns))

    def at(self, args: Arguments, _java: object) -> Answers:
        """The same columns at the point that options of a read say."""
        raise InvalidInputError(
            f"{self.name} is one point of a table's history already: leave the option "
            f"{', '.join(sorted(args))} out",
            table=self.name,
        )

    def options(self, args: Arguments, _java: object) -> dict[str, int]:
        """What options of a read that say no point in time say of splits."""
        return read_options(self.name, args)

    def condition(self, filters: str) -> Bound:
        """What is true of every row that the filters of a query leave, and perhaps of more."""
        request = self.request
        own = bind(request.where, self.schema, case_sensitive=request.case_sensitive)
        return conjunction((own, bind(translate_filters(filters, self.schema), self.schema)))

    def plan(self, filters: str, among: str = "[]") -> ScanPlan:
        """Plan with the filters of a query, and those that it made while it ran."""
        conditions = (json.dumps([condition]) for condition in json.loads(among))
        exact = (exact_condition(condition, self.schema) for condition in conditions)
        known = [condition for condition in exact if condition is not None]
        plan = self._planned(conjunction((self.condition(filters), *known)))
        self._ahead = None
        logger.debug("planned %s for Spark: %s", self.name, plan.report)
        self.listeners.planned(self.name, plan.report, engine=ENGINE_SPARK)
        return plan

    def _planned(self, where: Bound) -> ScanPlan:
        """A plan with a filter: the one before where that has the same, as it is for a question."""
        ahead = self._ahead
        if ahead is None or ahead[0] != where:
            ahead = where, plan_scan(replace(self.request, where=where), self.storage)
            self._ahead = ahead
        return ahead[1]


def _shown(name: str) -> Column:
    """A column of what workers read; the number that `FileHash.java` makes stands for a file."""
    if name == FILE_HASH:
        return F.xxhash64(F.col("_file")).alias(name)
    return F.col(quoted(name))
