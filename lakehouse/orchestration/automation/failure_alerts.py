"""A sensor that sends a text when something turns bad and when it is over: runs, checks, freshness.

By state, not by run: what goes on failing gives one text. What was sent is kept in the sensor's
cursor, so a daemon that starts again repeats nothing.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

import dagster as dg
import orjson
from dagster import DagsterEventType as EventType
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from lakehouse.orchestration.asset_results import FAILED_BY
from lakehouse.orchestration.automation.attempts import Request, Work, clock, doubled
from lakehouse.orchestration.automation.run_requests import SOURCE_TAG, index_job_name, request_of
from lakehouse.spec.identifier import split_name

_WILL_RETRY_TAG, _PARTITION_TAG = "dagster/will_retry", "dagster/partition"
_ERROR_LINES, _NAMED = 3, 3
# Dagster gives a tick a minute: what is not sent by then the next one sends
_PATIENCE_S, _TICK_S = 30, 25
_MODULE = re.compile(r"^(\w+\.)+(?=\w+: )")
_LOOKED_BACK_MS = _LONGEST_WAIT_MS = 24 * 3600 * 1000
_RUNS_AT_ONCE = 200
_HAPPENED = {
    EventType.ASSET_MATERIALIZATION_PLANNED,
    EventType.ASSET_MATERIALIZATION,
    EventType.STEP_SUCCESS,
    EventType.STEP_FAILURE,
}

Unit = tuple[str, str]
"""An asset, or a step of a job without assets, and a partition of it, or empty text."""


def failure_alerts(
    tell: Callable[[str], None], *, name: str = "failed_runs", url: str = ""
) -> dg.SensorDefinition:
    """A sensor that gives `tell` a text of few lines when something turns bad, and when it is over.

    - Runs: a source, a job, or an asset that no job of its own computes, is bad from the first run
      that fails until everything that failed has succeeded. Runs that fail meanwhile give no
      text, unless they fail for something else of an asset that worked in between. A run that
      Dagster runs again (`run_retries`) counts when the last one fails.
    - Checks: bad while the newest result is a failure or a warning.
    - Freshness policies: bad while they fail or warn.

    Where `tell` raises, a later tick gives it the text again, after a wait that doubles.

    >>> texts = []
    >>> failure_alerts(texts.append).name
    'failed_runs'

    Args:
        tell: sends a text.
        name: of the sensor.
        url: of the UI, such as `http://dagster.example:3000`: the text links to the run.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of runs, checks and freshness policies that turn bad, and when that is "
        "over. The switch beside its name stops it.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        now_ms = int(time.time() * 1000)
        known = Known.from_json(context.cursor, now_ms)
        known.look(context)
        sent, error = 0, None
        if now_ms >= known.silent_until_ms:
            sent, error = _tell_all(known, context, tell, url)
        if error is not None:
            known.refused += 1
            known.silent_until_ms = now_ms + doubled(known.refused, _LONGEST_WAIT_MS)
            context.log.error(f"The text could not be sent: {error}")
        elif sent:
            known.refused = 0
        context.update_cursor(known.to_json())
        if now_ms < known.silent_until_ms:
            why = f" ({error})" if error is not None else ""
            return dg.SkipReason(f"Not sent{why}: again at {clock(known.silent_until_ms)}.")
        return dg.SkipReason(f"{sent} sent." if sent else "Nothing has changed.")

    return sensor


def _tell_all(
    known: Known, context: dg.SensorEvaluationContext, tell: Callable[[str], None], url: str
) -> tuple[int, Exception | None]:
    """Send the texts that wait, until that fails or the tick has taken long."""
    sent, started = 0, time.monotonic()
    for text, mark_sent in known.news(context, url):
        try:
            tell(text)
        except Exception as error:  # noqa: BLE001 - whatever the operator's function raises
            return sent, error
        mark_sent()
        sent += 1
        if time.monotonic() - started > _TICK_S:
            break
    return sent, None


@dataclass
class Trouble:
    """What fails of one subject.

    Attributes:
        failing: what failed and has not succeeded since.
        run_id: the run to tell of: the first that failed, or the one that ended the trouble.
        sent: a text about it was sent.
        news: something fails that no text has named.
        worked: assets that succeeded since the text was sent.
    """

    failing: set[Unit] = field(default_factory=set)
    run_id: str = ""
    sent: bool = False
    news: bool = False
    worked: set[str] = field(default_factory=set)

    def failed(self, units: AbstractSet[Unit], run_id: str) -> None:
        """A run failed for these."""
        fresh = units - self.failing
        self.failing |= units
        if not self.news and (not self.sent or any(table in self.worked for table, _ in fresh)):
            self.news, self.run_id = True, run_id

    def succeeded(self, units: AbstractSet[Unit], run_id: str) -> None:
        """A run did these."""
        if self.sent:
            self.worked |= {unit for unit, _ in units}
        self.keep(self.failing - units, run_id)

    def keep(self, units: AbstractSet[Unit], run_id: str) -> None:
        """Only these still fail, after a run."""
        if self.failing and not units:
            self.news, self.run_id, self.worked = False, run_id, set()
        self.failing = set(units)


@dataclass
class Known:
    """What fails, and what of that was sent.

    Attributes:
        after: storage id of the newest event of a run that was looked at; None: the sensor is new,
            and looks a day back.
        since_ms: where it is new, the time from which it looks.
        troubles: by subject: a source, a job or an asset.
        checks: whose failure was sent.
        late: assets whose lateness was sent.
        refused: how many ticks in a row could not tell.
        silent_until_ms: nothing is sent before.
    """

    after: int | None = None
    since_ms: int = 0
    troubles: dict[str, Trouble] = field(default_factory=dict)
    checks: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    refused: int = 0
    silent_until_ms: int = 0

    def to_json(self) -> str:
        """As text, for `from_json`."""
        return orjson.dumps(
            {
                "after": self.after,
                "since_ms": self.since_ms,
                "troubles": {
                    name: {
                        "failing": _by_asset(trouble.failing),
                        "run": trouble.run_id,
                        "told": trouble.sent,
                        "news": trouble.news,
                        "worked": sorted(trouble.worked),
                    }
                    for name, trouble in sorted(self.troubles.items())
                },
                "checks": sorted(self.checks),
                "late": sorted(self.late),
                "refused": self.refused,
                "silent_until_ms": self.silent_until_ms,
            }
        ).decode()

    @classmethod
    def from_json(cls, text: str | None, now_ms: int) -> Known:
        """From its text; from that of another version, or none, as a new sensor."""
        try:
            document = orjson.loads(text or "")
            return cls(
                after=document["after"],
                since_ms=document["since_ms"],
                troubles={
                    name: Trouble(
                        {
                            (asset, part)
                            for asset, parts in trouble["failing"].items()
                            for part in parts
                        },
                        trouble["run"],
                        trouble["told"],
                        trouble["news"],
                        set(trouble["worked"]),
                    )
                    for name, trouble in document["troubles"].items()
                },
                checks=set(document["checks"]),
                late=set(document["late"]),
                refused=document["refused"],
                silent_until_ms=document["silent_until_ms"],
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(since_ms=now_ms - _LOOKED_BACK_MS)

    def look(self, context: dg.SensorEvaluationContext) -> None:
        """Take in the runs that ended since."""
        for record in self._ended(context.instance):
            self.after = record.storage_id
            run = context.instance.get_run_by_id(record.run_id)
            if run is None or not _is_ours(context, run):
                continue
            if record.event_type == EventType.RUN_SUCCESS:
                self.take(RanRun.of(context.instance, run, succeeded=True))
            elif run.tags.get(_WILL_RETRY_TAG) != "true":
                self.take(RanRun.of(context.instance, run, succeeded=False))
        if context.repository_def is not None:
            self._forget(context.repository_def)

    def take(self, ran: RanRun) -> None:
        """Take in a run that ended."""
        mine = ran.subjects()
        for name, trouble in self.troubles.items():
            if ran.request is None or name not in mine:
                trouble.succeeded(ran.done, ran.run.run_id)
        for name, units in mine.items():
            own = self.troubles.setdefault(name, Trouble())
            if ran.request is not None:  # it knows what failed before and still waits
                before = {_unit(work) for work in ran.request.attempts} - ran.asked
                if own.sent:
                    own.worked |= {asset for asset, _ in ran.done}
                own.keep(before | (units & own.failing), ran.run.run_id)
            if units:
                own.failed(units, ran.run.run_id)
            elif ran.request is None:
                own.keep(own.failing - {("", ran.part)}, ran.run.run_id)
        for name in [
            n for n, trouble in self.troubles.items() if not (trouble.failing or trouble.sent)
        ]:
            del self.troubles[name]

    def news(
        self, context: dg.SensorEvaluationContext, url: str
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Texts that wait to be sent, each with what to do once it is."""
        by_run: dict[tuple[str, bool], list[str]] = {}
        for name, trouble in sorted(self.troubles.items()):
            if trouble.news or not trouble.failing:
                by_run.setdefault((trouble.run_id, trouble.news), []).append(name)
        for (run_id, bad), names in by_run.items():
            text = (
                _failed_run(context.instance, run_id, names, url)
                if bad
                else f"{_named(names)}: works again.\n{_link(run_id, url)}"
            )
            yield text, partial(self._mark_sent, names)
        if context.repository_def is None:
            return
        instance, repository = context.instance, context.repository_def
        for text_of, reported, failing in (
            (_check_text, self.checks, _failed_checks(instance, repository)),
            (_late_text, self.late, _late_assets(instance, repository, self.late)),
        ):
            for name in sorted(failing.keys() - reported):
                yield text_of(name, failing[name], url), partial(reported.add, name)
            for name in sorted(reported - failing.keys()):
                yield text_of(name, None, url), partial(reported.remove, name)

    def _mark_sent(self, names: Iterable[str]) -> None:
        for name in names:
            trouble = self.troubles[name]
            trouble.sent, trouble.news, trouble.worked = True, False, set()
            if not trouble.failing:
                del self.troubles[name]

    def _ended(self, instance: dg.DagsterInstance) -> list[dg.EventLogRecord]:
        """Runs' ends, in their order."""
        since = self.since_ms / 1000 if self.after is None else None
        after = partial(
            dg.RunStatusChangeRecordsFilter, after_timestamp=since, after_storage_id=self.after
        )
        pages = [
            instance.fetch_run_status_changes(ends, limit=_RUNS_AT_ONCE, ascending=True).records
            for ends in (after(EventType.RUN_SUCCESS), after(EventType.RUN_FAILURE))
        ]
        # beyond the end of a list that was cut off nothing is taken before the rest of it
        cut = [page[-1].storage_id for page in pages if len(page) == _RUNS_AT_ONCE]
        records = sorted(
            (record for page in pages for record in page), key=lambda record: record.storage_id
        )
        return [record for record in records if not cut or record.storage_id <= min(cut)]

    def _forget(self, repository: dg.RepositoryDefinition) -> None:
        """What the project no longer has fails no longer."""
        jobs = {job.name for job in repository.get_all_jobs()}
        assets = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
        checks = {_check_name(key) for key in repository.asset_graph.asset_check_keys}
        sources = {f"source {name.removeprefix(index_job_name(''))}" for name in jobs}
        for name, trouble in self.troubles.items():
            present = {
                unit
                for unit in trouble.failing
                if not unit[0] or unit[0] in assets or unit[0].partition(":")[0] in jobs
            }
            known = name in jobs | assets | checks | sources
            trouble.keep(present if known else set(), trouble.run_id)


@dataclass(frozen=True)
class RanRun:
    """A run that ended.

    Attributes:
        run: the run.
        done: what it did.
        left: what it was to do, and did not; of one that succeeded nothing.
        request: what the landing sensor asked it for; None: somebody else did.
    """

    run: dg.DagsterRun
    done: frozenset[Unit]
    left: frozenset[Unit]
    request: Request | None

    @classmethod
    def of(cls, instance: dg.DagsterInstance, run: dg.DagsterRun, *, succeeded: bool) -> RanRun:
        """The run as its events tell it."""
        planned: set[Unit] = set()
        done: set[Unit] = set()
        failed: set[Unit] = set()
        part = run.tags.get(_PARTITION_TAG, "")
        for entry in instance.all_logs(run.run_id, of_type=_HAPPENED):
            event = entry.get_dagster_event()
            step = (f"{run.job_name}:{event.step_key}", part)
            if event.event_type == EventType.ASSET_MATERIALIZATION:
                written = event.step_materialization_data.materialization
                done.add((written.asset_key.to_user_string(), written.partition or ""))
            elif event.event_type == EventType.STEP_SUCCESS:
                done.add(step)
            elif event.event_type == EventType.STEP_FAILURE:
                failed.add(step)
            else:
                plan = event.asset_materialization_planned_data
                subset = plan.partitions_subset
                parts = [plan.partition or ""] if subset is None else subset.get_partition_keys()
                planned |= {(plan.asset_key.to_user_string(), part) for part in parts}
        request = request_of(run)
        if succeeded:
            return cls(run, frozenset(done | planned), frozenset(), request)
        if request is not None:
            planned = {_unit(work) for work in request.works}
        left = planned - done or failed or {("", part)}
        return cls(run, frozenset(done), frozenset(left), request)

    @property
    def part(self) -> str:
        """Its partition, if it has one."""
        return self.run.tags.get(_PARTITION_TAG, "")

    @property
    def asked(self) -> set[Unit]:
        """What the landing sensor asked it for."""
        return set() if self.request is None else {_unit(work) for work in self.request.works}

    def subjects(self) -> dict[str, set[Unit]]:
        """Whom it is about, and what of each it left undone."""
        if self.request is not None:
            return {f"source {self.run.tags[SOURCE_TAG]}": set(self.left)}
        if not self.run.job_name.startswith("__"):
            return {self.run.job_name: set(self.left)}
        assets = [key.to_user_string() for key in self.run.asset_selection or ()]
        checks = [_check_name(key) for key in self.run.asset_check_selection or ()]
        names = sorted(assets or checks) or [self.run.job_name]
        units: dict[str, set[Unit]] = {name: set() for name in names}
        for unit in self.left:
            for name in [unit[0]] if unit[0] in units else names:
                units[name].add(unit)
        return units


def failure_text(
    run: dg.DagsterRun,
    steps: Sequence[dg.DagsterEvent],
    failure: dg.DagsterEvent,
    url: str = "",
    name: str = "",
) -> str:
    """What failed, why, and where to look: a line for the run, then some for each step.

    Args:
        run: the run.
        steps: failures of its steps.
        failure: of the run, which says why where no step failed.
        url: of the UI.
        name: of what failed; empty: the job.
    """
    partition = f" for {run.tags[_PARTITION_TAG]}" if _PARTITION_TAG in run.tags else ""
    lines = [f"{name or run.job_name} failed{partition}."]
    for event in steps:
        lines += [f"{event.step_key}: {reason}" for reason in _reason(event)]
    if not steps:
        lines.append(failure.message or "Its process ended.")
    link = _link(run.run_id, url)
    lines.append(f"Tables show what was published, nothing half-written: {link}")
    return "\n".join(lines)


def by_command(command: str) -> Callable[[str], None]:
    """A way to tell: run a command with the text as its input.

    Args:
        command: as in a shell, but run by none, such as `mail -s "Lakehouse" you@example.com`.

    Raises (the function that comes back):
        subprocess.SubprocessError | OSError: the command fails, or takes more than half a minute.
    """
    arguments = shlex.split(command)

    def tell(text: str) -> None:
        subprocess.run(arguments, input=text.encode(), check=True, timeout=_PATIENCE_S)  # noqa: S603 - the operator's

    return tell


def _failed_run(instance: dg.DagsterInstance, run_id: str, names: Sequence[str], url: str) -> str:
    run = instance.get_run_by_id(run_id)
    entries = [
        entry.get_dagster_event()
        for entry in instance.all_logs(
            run_id, of_type={EventType.STEP_FAILURE, EventType.RUN_FAILURE}
        )
    ]
    ends = [event for event in entries if event.event_type == EventType.RUN_FAILURE]
    if run is None or not ends:
        return f"{_named(names)} failed, and its run was deleted."
    steps = [event for event in entries if event.event_type == EventType.STEP_FAILURE]
    name = _named(names) if run.job_name.startswith("__") else run.job_name
    return failure_text(run, steps, ends[-1], url, name)


def _reason(event: dg.DagsterEvent) -> list[str]:
    """The first lines of an error, without its module: of the cause, where Dagster wrapped one."""
    error = event.step_failure_data.error
    if error is None:
        return [event.message or "no reason is known"]
    innermost = error.cause if error.cause is not None else error
    text, failure = innermost.message, event.step_failure_data.user_failure_data
    if failure is not None and FAILED_BY in failure.metadata:
        text = f"{failure.metadata[FAILED_BY].value}: {failure.description}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [_MODULE.sub("", line) for line in lines[:_ERROR_LINES]]


def _failed_checks(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition
) -> Mapping[str, str]:
    """Checks whose newest result is bad, and what it says; of those that run, the one before."""
    keys = list(repository.asset_graph.asset_check_keys)
    failed = {}
    for key, record in instance.event_log_storage.get_asset_check_summary_records(keys).items():
        newest = record.last_completed_check_execution_record
        if newest is not None and newest.status == AssetCheckExecutionRecordStatus.FAILED:
            evaluation = newest.evaluation
            text = None if evaluation is None else evaluation.description
            failed[_check_name(key)] = text or ""
    return failed


def _late_assets(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, reported: AbstractSet[str]
) -> Mapping[str, str]:
    """Assets whose freshness policy fails or warns, and since when."""
    graph = repository.asset_graph
    keys = [
        key for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy is not None
    ]
    late = {}
    for key, record in instance.get_freshness_state_records(keys).items():
        name, state = key.to_user_string(), record.freshness_state
        if state in (FreshnessState.WARN, FreshnessState.FAIL) or (
            state != FreshnessState.PASS and name in reported  # as long as nobody knows
        ):
            late[name] = clock(int(record.updated_at.timestamp() * 1000))
    return late


def _check_name(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}:{key.name}"


def _check_text(name: str, text: str | None, url: str) -> str:
    asset, _, check = name.rpartition(":")
    if text is None:
        return f"Check {check} of {asset} does not fail any more."
    lines = [line.strip() for line in text.splitlines() if line.strip()][:_ERROR_LINES]
    link = f"{url.rstrip('/')}/assets/{asset}?view=checks" if url else f"{asset} in the UI"
    return "\n".join([f"Check {check} of {asset} failed.", *lines, link])


def _late_text(name: str, since: str | None, url: str) -> str:
    if since is None:
        return f"{name} is not late any more."
    link = f"{url.rstrip('/')}/assets/{name}" if url else f"{name} in the UI"
    return f"{name} is late, by its freshness policy, since {since}.\n{link}"


def _is_ours(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether it is a run of the sensor's code location, as Dagster's sensors of runs ask."""
    if run.remote_job_origin is None:
        return True
    repository, here = run.remote_job_origin.repository_origin, context.code_location_origin
    return repository.repository_name == context.repository_name and (
        here is None or repository.code_location_origin.location_name == here.location_name
    )


def _unit(work: Work) -> Unit:
    return dg.AssetKey(split_name(work.table)).to_user_string(), work.part


def _by_asset(units: AbstractSet[Unit]) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for asset, part in sorted(units):
        parts.setdefault(asset, []).append(part)
    return parts


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _link(run_id: str, url: str) -> str:
    return f"{url.rstrip('/')}/runs/{run_id}" if url else f"run {run_id} in the UI"
