"""Where an ingestion works: tables, workers, landing folders, and the log that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date

from pyspark.sql import SparkSession

from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.run_log import Say, silent
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.ingestion.workers.workers import SparkWorkers, ThisProcess, Workers
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Progress, no_progress

FEW_BYTES = 64 << 20
"""What is read without Spark: its session and its workers would take longer to start."""
_PACKED = (".gz", ".zst", ".bz2", ".snappy", ".zip", ".parquet", ".avro")
_UNPACKED = 8


def text_bytes(files: Iterable[LandingFile]) -> int:
    """About how many bytes of text files hold: packed ones, told by their names, count eight times.

    >>> text_bytes([LandingFile("a.json", 100, 0), LandingFile("b.json.gz", 100, 0)])
    900
    """
    return sum(
        file.size_bytes * (_UNPACKED if file.path.lower().endswith(_PACKED) else 1)
        for file in files
    )


@dataclass(frozen=True, slots=True)
class Workplace:
    """What an ingestion works with.

    Attributes:
        lake: the tables.
        session: gives Spark's, which does the reading and writing of all but a little.
        landing_root: where the landing folders are.
        today: the last day that events may have when a source names none.
        stamp: the step that ingests.
        say: takes a line of the log.
        progress: called while workers read: stage, tasks done, tasks in all.
        engines: those that did some of the work.
    """

    lake: Lakehouse
    session: Callable[[], SparkSession]
    landing_root: str
    today: date
    stamp: RunStamp
    say: Say = silent
    progress: Progress = no_progress
    engines: set[str] = field(default_factory=set)

    @property
    def spark(self) -> SparkSession:
        """Spark's session, which starts with the first use."""
        self.engines.add("spark")
        return self.session()

    def engine(self, source: Source, size_bytes: int) -> str:
        """Who does work on so many bytes of a source, `spark` or `python`; it is one of `engines`.

        A transform, which is a program of Spark, takes the session by itself.
        """
        engine = source.engine
        if engine == "auto":
            engine = "spark" if size_bytes > FEW_BYTES else "python"
        self.engines.add(engine)
        return engine

    def workers(self, source: Source, size_bytes: int) -> Workers:
        """Those of the engine."""
        is_spark = self.engine(source, size_bytes) == "spark"
        return SparkWorkers(self.spark) if is_spark else ThisProcess()

    def reader(self, source: Source) -> LandingReader:
        """Opens the source's files on the workers."""
        return LandingReader.of(self.landing_root, source, self.today)
