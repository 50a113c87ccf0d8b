"""The frames that assets take and give, of Spark or of an engine of this process without a JVM.

Every engine reads the same snapshots through the lakehouse's own scan, and what it gives is written
by the same writer: another engine changes who computes, and nothing else. Class names tell the
kinds of frames apart, so that no library is imported that an asset does not use.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse
from pyiceberg.schema import Schema

from lakehouse.data.writing.input_columns import ArrowData
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError, InvalidSchemaError, UnsupportedFeatureError
from lakehouse.expressions.filter_binding import Where
from lakehouse.ingestion.audit import MAIN
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table import Table, TableScan
from lakehouse.table.row_write import arrow_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakehouse.table.scan_dataset import ScanDataset

EngineName = Literal["spark", "datafusion", "duckdb", "polars"]
ENGINES: tuple[str, ...] = get_args(EngineName)


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows of a table that a computation reads.

    Attributes:
        table: where they are.
        where: which of them; None: all.
        snapshot_id: of which version, with its columns; None: of the head of `ref`, with the
            columns that the table has now.
        ref: the branch that is read.
        columns: of them; None: all.
        held: the rows, where they are in memory instead.
    """

    table: Table
    where: Where = None
    snapshot_id: int | None = None
    ref: str = MAIN
    columns: Sequence[str] | None = None
    held: pa.Table | None = None

    def schema(self) -> Schema:
        """Columns at that version."""
        return self.table.metadata.schema_at(self.snapshot_id)

    def head_id(self) -> int | None:
        """The snapshot that `ref` is at; None: it has none."""
        snapshot = self.table.current_snapshot(ref=self.ref)
        return None if snapshot is None else snapshot.snapshot_id

    def at(self, snapshot_id: int | None) -> InputRows:
        """The rows as they were at a snapshot; None: before there was one, which is no row."""
        if snapshot_id == self.head_id():
            return self
        if snapshot_id is None:
            return replace(self, where=AlwaysFalse())
        return replace(self, snapshot_id=snapshot_id, ref=MAIN)

    def scan(self) -> TableScan:
        """A scan of them; reads nothing before its rows are taken."""
        return self.table.scan(self.where, self.columns, snapshot_id=self.snapshot_id, ref=self.ref)


class Frames(dict[str, Any]):
    """Frames of the inputs, by the tables' names, and SQL over them.

    Attributes:
        engine: whose frames they are.
        inputs: what they are frames of.
    """

    def __init__(self, engine: ModelEngine, inputs: Mapping[str, InputRows]) -> None:
        super().__init__({name: engine.frame(rows) for name, rows in inputs.items()})
        self.engine = engine
        self.inputs = dict(inputs)

    def sql(self, query: str, views: Mapping[str, str]) -> Any:
        """The result of a query of the engine's SQL as a frame.

        Args:
            query: the SELECT.
            views: table -> its name in the query.
        """
        return self.engine.sql(query, {view: self[name] for name, view in views.items()})


class ModelEngine(ABC):
    """Frames of inputs, SQL over them, and their rows.

    Attributes:
        listed: so many values at most may a filter of its frames list.
    """

    listed = 100_000

    def frame(self, rows: InputRows) -> Any:
        """The rows as a lazy frame of the engine, which asks for what it needs of a table."""
        return self._scan(rows) if rows.held is None else self.frame_of(rows.held)

    @abstractmethod
    def _scan(self, rows: InputRows) -> Any:
        """Rows of a table as a frame."""

    @abstractmethod
    def frame_of(self, rows: pa.Table) -> Any:
        """Rows in memory as a frame."""

    @abstractmethod
    def sql(self, query: str, views: Mapping[str, Any]) -> Any:
        """A query over frames by their names in it, as a frame."""

    @abstractmethod
    def count(self, frame: Any) -> int:
        """How many rows the engine finds in a frame."""

    @abstractmethod
    def result(self, frame: Any, what: str) -> Any:
        """A computed frame as rows that a table takes: a frame of Spark, or a stream of Arrow."""

    @abstractmethod
    def staged(self, rows: InputRows) -> AbstractContextManager[Any]:
        """Written rows as a frame that Great Expectations checks, for a while."""


class SparkEngine(ModelEngine):
    """Frames of PySpark.

    Args:
        session: its session.
    """

    listed = 1_000

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def _scan(self, rows: InputRows) -> Any:
        return rows.scan().to_spark(self._session)

    def frame_of(self, rows: pa.Table) -> Any:
        """A DataFrame."""
        reader = importlib.import_module("lakehouse.spark.reading.worker_reader")
        return reader.shown_frame(self._session, rows)

    def sql(self, query: str, views: Mapping[str, Any]) -> Any:
        """By views that are gone afterwards: the plan holds the frames, not their names."""
        for name, frame in views.items():
            frame.createOrReplaceTempView(name)
        try:
            return self._session.sql(query)
        finally:
            for name in views:
                self._session.catalog.dropTempView(name)

    def count(self, frame: Any) -> int:
        """Of a Spark job."""
        return int(frame.count())

    def result(self, frame: Any, what: str) -> Any:  # noqa: ARG002
        """The frame itself."""
        return frame

    @contextmanager
    def staged(self, rows: InputRows) -> Iterator[Any]:
        """A DataFrame that is kept: each expectation may read it."""
        frame = self.frame(rows).persist()
        try:
            yield frame
        finally:
            frame.unpersist()


class _ArrowEngine(ModelEngine):
    """An engine of this process that reads and gives Arrow."""

    def __init__(self) -> None:
        self._failures: list[Exception] = []

    @contextmanager
    def staged(self, rows: InputRows) -> Iterator[Any]:
        """A table of Arrow."""
        yield rows.scan().to_arrow()

    def result(self, frame: Any, what: str) -> Any:
        """A stream, in types that a table has; an error of reading is raised as it was."""
        rows = self._read(lambda: rows_of_frame(frame, what)[0])
        stream = rows if isinstance(rows, pa.RecordBatchReader) else pa.table(rows).to_reader()
        schema = pa.schema([(field.name, _plain(field.type)) for field in stream.schema])
        return pa.RecordBatchReader.from_batches(schema, self._batches(stream, schema))

    def _batches(self, stream: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while True:
            batch = self._read(lambda: next(iter(stream), None))
            if batch is None:
                return
            yield batch.cast(schema)

    def _scanned(self, rows: InputRows) -> ScanDataset:
        # pyarrow's datasets take longer to import than most scans to plan
        from lakehouse.table.scan_dataset import ScanDataset  # noqa: PLC0415

        return ScanDataset(rows.scan(), self._failures)

    def _read(self, step: Callable[[], Any]) -> Any:
        """What a step gives. Engines pass on errors of reading as text alone: here they are."""
        try:
            return step()
        except Exception as error:
            if self._failures:
                raise self._failures[0] from error
            raise


class DuckDBEngine(_ArrowEngine):
    """Relations of one DuckDB connection in memory; times are UTC."""

    def __init__(self) -> None:
        super().__init__()
        try:
            duckdb = importlib.import_module("duckdb")
        except ModuleNotFoundError as error:
            raise UnsupportedFeatureError(
                "tables that DuckDB computes need duckdb: pip install 'pylakehouse[duckdb]'"
            ) from error
        self._connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            }
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def _scan(self, rows: InputRows) -> Any:
        return self._connection.from_arrow(self._scanned(rows))

    def frame_of(self, rows: pa.Table) -> Any:
        """A relation."""
        return self._connection.from_arrow(rows)

    def sql(self, query: str, views: Mapping[str, Any]) -> Any:
        """A relation over views of the connection, which is this computation's own."""
        for name, frame in views.items():
            frame.create_view(name, replace=True)
        return self._connection.sql(query)

    def count(self, frame: Any) -> int:
        """Rows that were read."""
        return int(self._read(lambda: frame.count("*").fetchone()[0]))


class DataFusionEngine(_ArrowEngine):
    """Frames of one DataFusion session; times are UTC."""

    def __init__(self) -> None:
        super().__init__()
        datafusion = importlib.import_module("datafusion")
        config = datafusion.SessionConfig().set("datafusion.execution.time_zone", "UTC")
        self._context = datafusion.SessionContext(config)
        self._known = 0

    def _scan(self, rows: InputRows) -> Any:
        self._known += 1
        name = f"__input_{self._known}"
        self._context.register_dataset(name, self._scanned(rows))
        return self._context.table(name)

    def frame_of(self, rows: pa.Table) -> Any:
        """A DataFrame."""
        self._known += 1
        name = f"__input_{self._known}"
        batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        self._context.register_record_batches(name, [batches])
        return self._context.table(name)

    def sql(self, query: str, views: Mapping[str, Any]) -> Any:
        """A DataFrame over views of the session, which is this computation's own."""
        for name, frame in views.items():
            self._context.deregister_table(name)
            self._context.register_table(name, frame.into_view())
        return self._context.sql(query)

    def count(self, frame: Any) -> int:
        """Rows that were read."""
        return int(self._read(frame.count))


class PolarsEngine(_ArrowEngine):
    """LazyFrames of Polars."""

    def __init__(self) -> None:
        super().__init__()
        self._polars = importlib.import_module("polars")

    def _scan(self, rows: InputRows) -> Any:
        return self._polars.scan_pyarrow_dataset(self._scanned(rows))

    def frame_of(self, rows: pa.Table) -> Any:
        """A LazyFrame."""
        return self._polars.DataFrame(rows).lazy()

    def sql(self, query: str, views: Mapping[str, Any]) -> Any:
        """A LazyFrame."""
        return self._polars.SQLContext(dict(views)).execute(query, eager=False)

    def count(self, frame: Any) -> int:
        """Rows that were read."""
        return int(self._read(lambda: frame.select(self._polars.len()).collect().item()))


_IN_PROCESS: Mapping[str, Callable[[], ModelEngine]] = {
    "datafusion": DataFusionEngine,
    "duckdb": DuckDBEngine,
    "polars": PolarsEngine,
}


def engine_name(name: str, what: str) -> EngineName:
    """The name of an engine. Raises InvalidInputError when there is no such engine."""
    if name not in ENGINES:
        raise InvalidInputError(f"{what}: no engine {name!r}; engines: {', '.join(ENGINES)}")
    return cast("EngineName", name)


def open_engine(name: str, session: Callable[[], SparkSession]) -> ModelEngine:
    """An engine for one computation.

    Args:
        name: of `ENGINES`.
        session: gives the Spark session, and is called for Spark alone.

    Raises:
        UnsupportedFeatureError: its package is not installed.
    """
    if name == "spark":
        return SparkEngine(session())
    return _IN_PROCESS[name]()


def as_stored(
    rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader, schema: Schema, what: str
) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader:
    """The rows with numbers of the types that a table's columns of these names have.

    Raises:
        InvalidSchemaError: a type cannot hold a value; raised of a stream when its batch is read.
    """
    known = {field.name: field.type for field in schema_to_arrow(schema)}
    kinds = [(field, known.get(field.name, field.type)) for field in rows.schema]
    wanted = pa.schema(
        [
            field.with_type(kind) if _is_number(field.type) and _is_number(kind) else field
            for field, kind in kinds
        ]
    )
    if wanted.equals(rows.schema):
        return rows

    def stored(part: Any) -> Any:
        columns = [_exactly(part.column(at), field, what) for at, field in enumerate(wanted)]
        return type(part).from_arrays(columns, schema=wanted)

    if isinstance(rows, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(wanted, map(stored, rows))
    return stored(rows)


def _exactly(values: Any, wanted: pa.Field, what: str) -> Any:
    if values.type == wanted.type:
        return values
    try:
        stored = values.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _does_not_fit(values, wanted, what, str(error)) from error
    rounds = pa.types.is_floating(values.type) and pa.types.is_decimal(wanted.type)
    if rounds and not stored.cast(values.type).equals(values):
        raise _does_not_fit(values, wanted, what, "digits would be rounded away")
    return stored


def _does_not_fit(values: Any, wanted: pa.Field, what: str, why: str) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"{what}: column {wanted.name!r} is {values.type} in the rows and {wanted.type} in the "
        f"table, which cannot hold a value of them: {why}",
        table=what,
        column=wanted.name,
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that a table has for what an engine gives."""
    if pa.types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if kind.bit_width == 64 else pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return cast("pa.DataType", kind)


Loader = Callable[[TableScan], Any]


def _duckdb_relation(scan: TableScan) -> Any:
    return importlib.import_module("duckdb").connect().from_arrow(scan.to_arrow())


_LOADERS: dict[tuple[str, str], Loader] = {
    ("pyarrow", "Table"): TableScan.to_arrow,
    ("pyarrow", "RecordBatchReader"): TableScan.to_batches,
    ("polars", "DataFrame"): TableScan.to_polars,
    ("polars", "LazyFrame"): lambda scan: scan.to_polars().lazy(),
    ("pandas", "DataFrame"): TableScan.to_pandas,
    ("duckdb", "DuckDBPyRelation"): _duckdb_relation,
    ("lakehouse", "TableScan"): lambda scan: scan,
}
_SPARK = ("pyspark", "DataFrame")
_SUPPORTED = (
    "pyarrow.Table, pyarrow.RecordBatchReader, polars.DataFrame, polars.LazyFrame, "
    "pandas.DataFrame, pyspark.sql.DataFrame, duckdb.DuckDBPyRelation, lakehouse.TableScan, "
    "lakehouse.Table"
)


def loader_for(annotation: Any, session: Callable[[], Any], what: str) -> Loader | None:
    """What turns a scan into an annotated type; None for `lakehouse.Table`, which is no rows.

    Args:
        annotation: of the input.
        session: gives the Spark session, called for Spark frames alone.
        what: names the input in messages.

    Raises:
        InvalidInputError: no annotation, or none that is supported.
    """
    present = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(present) == 1 and len(get_args(annotation)) == 2:
        annotation = present[0]  # of an asset that reads itself: None on its first run
    if annotation is Table:
        return None
    kind = _kind(annotation) if isinstance(annotation, type) else None
    if kind == _SPARK:
        return lambda scan: scan.to_spark(session())
    loader = None if kind is None else _LOADERS.get(kind)
    if loader is None:
        given = "no annotation" if annotation is Any else f"the annotation {annotation!r}"
        raise InvalidInputError(f"{what} has {given}: annotate it with one of {_SUPPORTED}")
    return loader


def rows_of_frame(frame: Any, table: str) -> tuple[Any, object]:
    """What an asset gave, as the verbs of a table take it, and its schema.

    Returns:
        A Spark frame with its Spark schema, or Arrow rows with an Arrow schema.

    Raises:
        InvalidInputError: these are no rows.
    """
    if engine_for(frame) is not None and hasattr(frame, "schema"):
        return frame, frame.schema
    if frame is None or isinstance(frame, list | tuple | dict | str | Table):
        raise InvalidInputError(
            f"{table}: the asset gave {type(frame).__name__}, which is no table of rows: return "
            f"one of {_SUPPORTED}; an asset that stores nothing is annotated `-> None`",
            table=table,
        )
    if _kind(type(frame)) == ("polars", "LazyFrame"):
        frame = frame.collect()
    rows: ArrowData = arrow_rows(frame, table)
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise InvalidInputError(
            f"{table}: the asset gave {type(frame).__name__}: return one table or stream",
            table=table,
        )
    return rows, rows.schema


def _kind(of: type) -> tuple[str, str]:
    return of.__module__.partition(".")[0].removeprefix("_"), of.__name__
