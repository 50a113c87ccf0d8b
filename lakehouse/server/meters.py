"""What a server counts and measures, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.errors import AlreadyExistsError, CommitConflictError, LakehouseError
from lakehouse.scan.reports.plan_report import PlanReport
from lakehouse.server.sibling_workers import Siblings

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """The counts of one server. Safe between threads.

    Siblings keep theirs in files of the server's folder: any of them tells the sum, and the counts
    of a process that died stay. Gauges of a process carry its number as a label.

    Args:
        siblings: the processes of the server; None: this one is all of it.

    >>> meters = Meters()
    >>> meters.answered("GET /v1/config", 200, seconds=0.002)
    >>> "lakehouse_request_seconds_count" in meters.text().decode()
    True
    """

    def __init__(self, siblings: Siblings | None = None) -> None:
        registry = self._registry = CollectorRegistry()
        if siblings is None:
            ProcessCollector(registry=registry)
        else:
            _count_in_files(siblings)
            MultiProcessCollector(registry, str(siblings.folder))  # type: ignore[no-untyped-call]
            registry.register(_Processes(siblings))
            registry = CollectorRegistry()  # the files of all tell what is counted here, too
        self._requests = Histogram(
            "lakehouse_request_seconds",
            "Seconds until a request was answered.",
            ("operation", "status"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._counted: dict[tuple[str, int], Histogram] = {}
        self._commits = Counter(
            "lakehouse_commits",
            "Commits to tables: committed, conflict, refused, or unknown.",
            ("outcome",),
            registry=registry,
        )
        self._races = Counter(
            "lakehouse_commit_retries",
            "Races that a commit lost to others and ran again inside the server.",
            registry=registry,
        )
        self._plans = Counter(
            "lakehouse_plans",
            "Scans asked for: planned, or still in memory (kept).",
            ("source",),
            registry=registry,
        )
        self._manifests = Counter(
            "lakehouse_planned_manifests",
            "Manifests that plans opened, by what answered: a cache, a columnar manifest, or Avro.",
            ("source",),
            registry=registry,
        )

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """A request was answered."""
        counted = self._counted.get((operation, status))
        if counted is None:  # looking it up takes as long as counting
            counted = self._counted[operation, status] = self._requests.labels(
                operation, str(status)
            )
        counted.observe(seconds)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Count how the commit inside ends."""
        try:
            yield
        except (CommitConflictError, AlreadyExistsError):
            self._commits.labels("conflict").inc()
            raise
        except LakehouseError as error:
            self._commits.labels("refused" if is_certain(error) else "unknown").inc()
            raise
        except BaseException:
            self._commits.labels("unknown").inc()
            raise
        self._commits.labels("committed").inc()

    def lost_race(self) -> None:
        """A commit is run again."""
        self._races.inc()

    def planned(self, report: PlanReport | None) -> None:
        """A scan was planned; None: it was still in memory."""
        self._plans.labels("kept" if report is None else "planned").inc()
        for counts in () if report is None else (report.data_manifests, report.delete_manifests):
            self._manifests.labels("cache").inc(counts.read_cached)
            self._manifests.labels("columnar").inc(counts.read_columnar)
            self._manifests.labels("avro").inc(counts.read_bulk + counts.read_slow)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)


def _count_in_files(siblings: Siblings) -> None:
    """From now on this process counts in a file of its number, where it was before it died."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(siblings.folder)
    counted = values.MultiProcessValue(lambda: siblings.number)  # type: ignore[no-untyped-call]
    values.ValueClass = counted


class _Processes(Collector):
    """Memory, files and time of each process of a server.

    Args:
        siblings: the processes.
    """

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings

    def collect(self) -> Iterator[Metric]:
        """What each has of each kind, called by Prometheus' client."""
        metrics: dict[str, Metric] = {}
        for number, process in self._siblings.processes():
            for metric in ProcessCollector(pid=partial(str, process), registry=None).collect():
                total = Metric(metric.name, metric.documentation, metric.type)
                kind = metrics.setdefault(metric.name, total)
                for sample in metric.samples:
                    kind.add_sample(sample.name, {"worker": str(number)}, sample.value)
        yield from metrics.values()
