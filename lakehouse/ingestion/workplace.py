"""Where an ingestion works: tables, workers, landing folders, and the log that it writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import SparkSession

from lakehouse.ingestion.landing_ledger import landing_folder
from lakehouse.ingestion.run_log import Say, silent
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Progress, no_progress
from lakehouse.storage.storage_by_scheme import storage_for


@dataclass(frozen=True, slots=True)
class Workplace:
    """What an ingestion works with.

    Attributes:
        lake: the tables.
        spark: does the reading and writing.
        landing_root: where the landing folders are.
        today: the last day that events may have when a source names none.
        stamp: the step that ingests.
        say: takes a line of the log.
        progress: called while workers read: stage, tasks done, tasks in all.
    """

    lake: Lakehouse
    spark: SparkSession
    landing_root: str
    today: date
    stamp: RunStamp
    say: Say = silent
    progress: Progress = no_progress

    def reader(self, source: Source) -> LandingReader:
        """Opens the source's files on the workers."""
        folder = landing_folder(self.landing_root, source)
        as_read = replace(source, transform=None)  # runs in the driver, and may hold anything
        return LandingReader(folder, as_read, self.today, dict(storage_for(folder).properties))
