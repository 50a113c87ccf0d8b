"""A small pipeline on its own landing folder and warehouse; Spark is shared by all tests."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import dagster as dg
import orjson
import pyarrow as pa
import pytest

from lakehouse.ingestion.ingest import IndexOutcome, IngestOutcome, index_landing, ingest_days
from lakehouse.ingestion.ingest_plan import Mode, combined
from lakehouse.ingestion.landing_ledger import LandingFile, LedgerRow, ledger_to_arrow
from lakehouse.ingestion.reading.formats.record_chunks import Values, python_values
from lakehouse.ingestion.source import Column, Engine, EventTime, Source
from lakehouse.ingestion.source_tables import ledger_table, read_ledger
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workplace import Workplace
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.table import TableScan

TODAY = date(2026, 6, 30)
EVENTS = Source(
    name="events",
    pattern="*.jsonl.gz",
    event_time=EventTime("ts", zone="Europe/Berlin"),
    first_day=date(2026, 6, 1),
    last_day=date(2026, 6, 20),
    bucket="user",
    buckets=2,
    # they land few lines, most of them odd
    max_rejected=100.0,
    natural_key=("id",),
    columns=(
        Column("id", "long"),
        Column("ts", "string"),
        Column("user", "string"),
        Column("amount", "int"),
    ),
    max_line_bytes=1 << 20,
)
_run_numbers = itertools.count(1)


def listed(values: Values) -> list[object]:
    """The values of a column of records."""
    return python_values(values) if isinstance(values, pa.Array) else values


def june(first: int, last: int | None = None) -> list[date]:
    """Days of June 2026, both included."""
    return [date(2026, 6, day) for day in range(first, (last or first) + 1)]


def remember(lake: Lakehouse, files: Sequence[LandingFile], pending: bool, days: list[int]) -> None:
    """Have the ledger of events know files, each with a line of each of these days of June."""
    rows = [
        LedgerRow(
            landing_file=file.path,
            size_bytes=file.size_bytes,
            modified_ms=file.modified_ms,
            event_day=date(2026, 6, day),
            lines=1,
            pending=pending,
        )
        for file in files
        for day in days
    ]
    ledger_table(lake, EVENTS).overwrite(ledger_to_arrow(rows))


def materialized(
    lake: Lakehouse,
    table: DerivedTable,
    instance: dg.DagsterInstance,
    first: str | None = None,
    last: str | None = None,
    *,
    days: dg.DailyPartitionsDefinition | None = None,
    **config: object,
) -> dg.ExecuteInProcessResult:
    """A run of a table, or of its partitions `first` to `last`, without Spark."""
    ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    is_range = bool(last) and first != last
    return dg.materialize(
        [table.build(days if table.day_column else None)],
        instance=instance,
        partition_key=None if is_range else first or None,
        tags=ends if is_range else None,
        run_config={"ops": {table.op_name: {"config": config}}},
        resources={
            "lakehouse": LakehouseResource(catalog=lake.catalog.uri),
            # an engine that is not Spark starts no session: this one could not
            "spark": LakehouseSpark(master="spark://nowhere:1"),
        },
        raise_on_error=False,
    )


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Of each table whose rows are read: the number of files of each scan."""
    read: dict[str, list[int]] = {}
    whole = TableScan.to_arrow

    def counted(scan: TableScan) -> pa.Table:
        read.setdefault(scan.name, []).append(len(scan.plan().tasks))
        return whole(scan)

    monkeypatch.setattr(TableScan, "to_arrow", counted)
    return read


def event(number: int, day: int, hour: int = 12, **fields: object) -> bytes:
    """A good line, unless `fields` spoil it.

    Hours are those of Berlin: before 2 o'clock it is the day before in UTC.
    """
    return orjson.dumps(
        {
            "id": number,
            "ts": f"2026-06-{day:02}T{hour:02}:00:00",
            "user": f"u{number % 5}",
            "amount": number,
            **fields,
        }
    )


@dataclass
class Pipe:
    """One source with everything around it."""

    root: Path
    spark: object
    source: Source = EVENTS
    lake: Lakehouse = field(init=False)

    def __post_init__(self) -> None:
        self.lake = load_catalog(self.warehouse)
        self.folder.mkdir(parents=True)

    @property
    def warehouse(self) -> str:
        return (self.root / "warehouse").as_uri()

    @property
    def landing(self) -> str:
        return str(self.root / "landing")

    @property
    def folder(self) -> Path:
        return Path(self.landing) / self.source.name

    def with_source(self, **changes: object) -> Pipe:
        return replace(
            self, root=self.root / str(next(_run_numbers)), source=replace(self.source, **changes)
        )

    def land(self, name: str, lines: Sequence[bytes], *, modified: int | None = None) -> Path:
        path = self.folder / name
        data = b"\n".join(lines) + b"\n"
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        if modified is not None:
            os.utime(path, (modified, modified))
        return path

    def work(self, run_id: str | None = None) -> Workplace:
        stamp = RunStamp(run_id or f"run{next(_run_numbers)}", "raw/events")
        return Workplace(self.lake, lambda: self.spark, self.landing, TODAY, stamp)

    def index(self, run_id: str | None = None) -> IndexOutcome:
        return index_landing(self.work(run_id), self.source)

    def ingest(self, days: Sequence[date], mode: Mode = "replace") -> IngestOutcome:
        return self.ingest_as(None, days, mode)

    def ingest_as(self, run_id: str | None, days: Sequence[date], mode: Mode) -> IngestOutcome:
        return ingest_days(self.work(run_id), self.source, days, mode, lambda snapshot, days: ())

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        names = list(columns or ("id",))
        table = self.lake.load_table(self.source.table).scan(select=names).to_arrow()
        return sorted(tuple(row[name] for name in names) for row in table.to_pylist())

    def quarantine(self) -> list[tuple[str, int | None, str]]:
        if not self.lake.table_exists(self.source.quarantine_table):
            return []
        found = self.lake.load_table(self.source.quarantine_table).scan().to_arrow().to_pylist()
        return sorted(((r["landing_file"], r["landing_line"], r["reason"]) for r in found), key=str)

    def ledger(self) -> list[LedgerRow]:
        return read_ledger(self.lake.load_table(self.source.ledger_table))

    def snapshots(self) -> int:
        return len(self.lake.load_table(self.source.table).snapshots())

    def assert_conserved(self, landed: int) -> None:
        """Landed lines = rows + quarantined + duplicates, and the ledger says the same."""
        rows, counts = len(self.rows()), combined(self.ledger())
        quarantined = sum(1 for _, line, _ in self.quarantine() if line is not None)
        assert landed == rows + quarantined + counts.duplicates
        assert (counts.lines, counts.rows, counts.quarantined) == (landed, rows, quarantined)


BY_EACH_ENGINE = pytest.mark.parametrize(
    "engine", ["python", pytest.param("spark", marks=pytest.mark.spark)]
)
"""Ingests by the test's process, and by Spark."""


@pytest.fixture
def engine(spark: object) -> str:
    """As a source has it that names none."""
    return "auto"


@pytest.fixture
def pipe(request: pytest.FixtureRequest, tmp_path: Path, engine: Engine) -> Pipe:
    spark = None if engine == "python" else request.getfixturevalue("spark")
    return Pipe(tmp_path, spark, replace(EVENTS, engine=engine))
