"""The I/O manager: a plain `@dg.asset` takes and gives frames, which are rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, get_args

import dagster as dg
from pydantic import PrivateAttr
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema

from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, NoSuchRefError, NoSuchTableError
from lakehouse.ingestion.audit import MAIN
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_attributes import DEFINITION_METADATA, code_digest
from lakehouse.orchestration.asset_results import explained, remove_dead_branches
from lakehouse.orchestration.assets.asset_table import AssetTable
from lakehouse.orchestration.assets.asset_write import PARTITION_ROWS, AssetWrite
from lakehouse.orchestration.assets.blocking_checks import AtStepsEnd, BlockingChecks, publish
from lakehouse.orchestration.assets.frames import InputRows, loader_for
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.materialization import materialization_metadata
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, Snapshot
from lakehouse.table import Table


class LakehouseIOManager(dg.ConfigurableIOManager):
    """Stores what assets return as tables, and loads tables as what assets ask for.

    The asset `marts/by_user` is the table `marts.by_user`, created by the first run. An asset gives
    a pyarrow table or stream, a frame of Polars, pandas or Spark, a relation of DuckDB or a scan,
    and is given what its inputs are annotated with: one of these, `lakehouse.TableScan`, which
    reads nothing before it is asked to, or `lakehouse.Table`.

    >>> import dagster as dg, polars as pl
    >>> from lakehouse.orchestration import LakehouseIOManager, LakehouseResource
    >>> @dg.asset(key_prefix="raw")
    ... def clicks() -> pl.DataFrame:
    ...     return pl.DataFrame({"user": [1, 1, 2], "amount": [1.0, 2.0, 3.0]})
    >>> @dg.asset(key_prefix="marts", ins={"clicks": dg.AssetIn(key_prefix="raw")})
    ... def by_user(clicks: pl.DataFrame) -> pl.DataFrame:
    ...     return clicks.group_by("user").agg(pl.sum("amount"))
    >>> manager = LakehouseIOManager(lakehouse=LakehouseResource(catalog=f"{folder}/lake"))
    >>> dg.materialize([clicks, by_user], resources={"io_manager": manager}).success
    True

    What else an asset's `metadata` may say is in `AssetTable`: which column tells its partition,
    whether rows replace, add to or change those that are there, and so on (docs/dagster.md).

    A write happens once in a run, however often its step is tried. Its materialization records the
    snapshot that it made and those that were read for it, as that of every other asset does.

    Attributes:
        lakehouse: the catalog.
        spark: where Spark frames are read; None: a local session. No JVM starts before one is
            used.
        namespace: of assets whose key has one part.
        branch: where assets write. They read from it where their inputs have it, else from `main`:
            a branch of the whole pipeline that copies nothing.
    """

    lakehouse: LakehouseResource
    spark: LakehouseSpark | None = None
    namespace: str = "default"
    branch: str = MAIN
    _read: dict[str, dict[str, int | None]] = PrivateAttr(default_factory=dict)

    def load_input(self, context: dg.InputContext) -> Any:
        """What the input's annotation asks for.

        Raises:
            Failure: with what to do, for an error of the engine.
        """
        with explained():
            lake = self.lakehouse.lake()
            rows = input_rows(context, lake, self.namespace, self.branch)
            if rows is None:
                return None
            if _has_step(context):  # not where a person loads a value
                self._read.setdefault(_step(context), {})[rows.table.name] = rows.head_id()
            spark = self.spark or LakehouseSpark()
            return loaded(context, rows, lambda: spark.spark_session)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write what an asset returned.

        Raises:
            Failure: with what to do, for an error of the engine.
        """
        if not context.has_asset_key and obj is None:
            return  # an op without a result
        with explained():
            self._store(context, obj)

    def _store(self, context: dg.OutputContext, obj: Any) -> None:
        target = asset_table(context, self.namespace)
        inputs = self._read.get(_step(context), {})
        lake = self.lakehouse.lake()
        if isinstance(obj, Table):
            table = _written_by_the_asset(obj, target)
            self._record(context, table, table.current_snapshot(ref=self._onto(target)), inputs)
            return
        if self.spark is not None and engine_for(obj) is not None:
            context.add_output_metadata(self.spark.used())
        write = _write(context, lake, target, obj, inputs, self._onto(target))
        checks = BlockingChecks.of(context.step_context, context.asset_key)
        if checks is None:
            snapshot = write(write.onto, write.stamp.commit_id("rows"))
            self._record(context, write.table, snapshot, inputs, write.rows)
            return
        remove_dead_branches(write.table, context.step_context.instance, context.log.info)
        staged = write.staged()

        def published() -> Snapshot:
            return publish(write, staged, checks, self.lakehouse, lake)[0]

        def at_the_end() -> dict[str, Any]:
            with explained():
                snapshot = published()
            return self._metadata(context, write.table, snapshot, inputs, write.rows)

        snapshot = staged.snapshot if checks.in_step else published()
        self._record(context, write.table, snapshot, inputs, write.rows)
        if checks.in_step:
            AtStepsEnd(context, at_the_end, staged.drop)

    def _onto(self, target: AssetTable) -> str:
        return target.branch or self.branch

    def _record(
        self,
        context: dg.OutputContext,
        table: Table,
        snapshot: Snapshot | None,
        inputs: Mapping[str, int | None],
        rows: int | None = None,
    ) -> None:
        if snapshot is None:
            raise dg.Failure(f"{table.name} has no snapshot: nothing was written to it")
        metadata = self._metadata(context, table, snapshot, inputs, rows)
        context.add_output_metadata(metadata)
        context.log.info(f"{table.name}: snapshot {snapshot.snapshot_id}, {_counts(snapshot)}")

    def _metadata(
        self,
        context: dg.OutputContext,
        table: Table,
        snapshot: Snapshot,
        inputs: Mapping[str, int | None],
        rows: int | None,
    ) -> dict[str, Any]:
        """What the materialization says, but for what the asset says itself."""
        if REFRESH_STATE in snapshot.summary:  # of a retry: what the first attempt had read
            inputs = dict(RefreshState.from_json(snapshot.summary[REFRESH_STATE]).inputs)
        metadata: dict[str, Any] = {
            **materialization_metadata(table, snapshot, inputs),
            DEFINITION_METADATA: code_version_of(context) or "unknown",
        }
        if rows is not None and context.has_asset_partitions:
            metadata[PARTITION_ROWS] = rows
        return {key: value for key, value in metadata.items() if key not in context.output_metadata}


def input_rows(
    context: dg.InputContext, lake: Lakehouse, namespace: str, branch: str
) -> InputRows | None:
    """What an input reads: rows of the partitions that Dagster asks for.

    None: of an asset that reads itself and has no table yet, as for Dagster's own managers.

    Raises:
        InvalidInputError: it is no asset, or its metadata cannot be used.
        NoSuchTableError | NoSuchRefError: it was never written.
    """
    upstream = context.upstream_output
    if not context.has_asset_key or upstream is None:
        raise InvalidInputError(
            f"{_what(context)} is no asset: values between ops need another I/O manager, such "
            "as io_manager_key='fs_io_manager'"
        )
    key = context.asset_key.to_user_string()
    source = AssetTable.of(context.asset_key, upstream.definition_metadata or {}, namespace)
    if not lake.table_exists(source.name):
        if not _reads_itself(context):
            raise NoSuchTableError(
                f"{source.name} does not exist yet: materialize {key} first", table=source.name
            )
        if NoneType not in get_args(context.dagster_type.typing_type):
            raise InvalidInputError(
                f"{_what(context)} is the asset itself, which has no table before its "
                "first run: annotate the input with `... | None`"
            )
        return None
    table = lake.load_table(source.name)
    if source.branch is not None and source.branch not in table.refs():
        raise NoSuchRefError(
            f"{source.name} has no branch {source.branch!r} yet: materialize {key} first",
            table=source.name,
            ref=source.branch,
        )
    where = None
    if context.has_asset_partitions:
        wanted = context.asset_partitions_def, context.asset_partition_keys
        where = source.where(*wanted, table.schema())
    columns = (context.definition_metadata or {}).get("columns")
    ref = source.branch or (branch if branch in table.refs() else MAIN)
    return InputRows(table, where, ref=ref, columns=None if columns is None else list(columns))


def loaded(context: dg.InputContext, rows: InputRows, session: Callable[[], Any]) -> Any:
    """The rows as the input's annotation wants them; `lakehouse.Table` is the table itself.

    Raises:
        InvalidInputError: no annotation, or none that is supported.
    """
    convert = loader_for(context.dagster_type.typing_type, session, _what(context))
    return rows.table if convert is None else convert(rows.scan())


def _write(
    context: dg.OutputContext,
    lake: Lakehouse,
    target: AssetTable,
    obj: Any,
    inputs: Mapping[str, int | None],
    onto: str,
) -> AssetWrite:
    definition = context.asset_partitions_def if context.has_asset_partitions else None
    keys = list(context.asset_partition_keys) if definition is not None else []

    def where(schema: Schema) -> BooleanExpression:
        if definition is None or target.write_mode != "overwrite":
            return AlwaysTrue()
        return target.where(definition, keys, schema)

    return AssetWrite.of(
        lake,
        target,
        obj,
        where,
        RunStamp.of(context.run_id, target.asset, keys),
        RefreshState(inputs, definition=code_version_of(context)),
        context.log.warning,
        onto,
        definition,
        one_partition=len(keys) == 1,
    )


def code_version_of(context: dg.OutputContext) -> str:
    """What tells the code that made an output from other code; empty: nothing does."""
    version: str | None = context.asset_spec.code_version if context.has_asset_key else None
    return version or code_digest(context.op_def)


def asset_table(context: dg.OutputContext, namespace: str) -> AssetTable:
    """The table that an output is written to. Raises InvalidInputError."""
    if not context.has_asset_key:
        raise InvalidInputError(
            f"output {context.name!r} of {context.op_def.name} is no asset: values between ops "
            "need another I/O manager, such as io_manager_key='fs_io_manager'"
        )
    return AssetTable.of(context.asset_key, context.definition_metadata or {}, namespace)


def _written_by_the_asset(table: Table, target: AssetTable) -> Table:
    if table.name == target.name:
        return table
    raise InvalidInputError(
        f"asset {target.asset} gave the table {table.name}, and its own is {target.name}: return "
        f"that one, as the asset wrote it, or the rows to store, {table.name}.scan()",
        table=table.name,
    )


def _has_step(context: dg.InputContext) -> bool:
    """Whether a step of a run asks; `load_asset_value` and its like have none."""
    try:
        return context.step_context is not None
    except dg.DagsterInvariantViolationError:
        return False


def _what(context: dg.InputContext) -> str:
    if not _has_step(context):
        return f"the value of {context.asset_key.to_user_string()}"
    return f"input {context.name!r} of {context.op_def.name}"


def _reads_itself(context: dg.InputContext) -> bool:
    return _has_step(context) and context.asset_key in (
        context.step_context.job_def.asset_layer.get_selected_entity_keys_for_node(
            context.step_context.node_handle
        )
    )


def _step(context: dg.InputContext | dg.OutputContext) -> str:
    step = context.step_context
    return f"{step.run_id}:{step.step.key}"


def _counts(snapshot: Snapshot) -> str:
    summary = snapshot.summary
    added, removed = summary.get("added-records", "0"), summary.get("deleted-records", "0")
    return f"{added} rows added, {removed} removed, {summary.get('total-records', '?')} in all"
