"""The state of a lakehouse as a markdown page with charts, and since when policies are violated."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakehouse.maintenance.advice.due_actions import Action, decide
from lakehouse.maintenance.health.table_health import TableHealth, health
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.shown_plan import human_bytes, human_ms
from lakehouse.orchestration.asset_attributes import code, plain
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table import Table

_MOST_POINTS = 300
_MOST_PARTITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A snapshot's totals, from its summary."""

    timestamp_ms: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table now.

    Attributes:
        actions: what health and policy ask for; empty: the table is within its policy.
        beyond_since_ms: since when there has been something to do; None: there is nothing.
        history: totals of the snapshots kept, oldest first, every so many of them.
    """

    health: TableHealth
    policy: MaintenancePolicy
    actions: tuple[Action, ...]
    beyond_since_ms: int | None
    history: tuple[Moment, ...]

    @property
    def name(self) -> str:
        """Dotted."""
        return str(self.health.identifier)

    def overdue(self, now_ms: int) -> bool:
        """Whether it has been beyond its policy for longer than the policy allows."""
        return (
            self.beyond_since_ms is not None
            and now_ms - self.beyond_since_ms >= self.policy.alert_after_ms
        )


def table_state(
    table: Table,
    *,
    since: Mapping[str, int],
    project: Mapping[str, str] | None = None,
) -> TableState:
    """Measure a table, from metadata alone.

    Args:
        table: the table.
        since: table -> since when it was beyond its policy when this was last asked; tables within
            theirs are not in it.
        project: defaults of the project for `lakehouse.maintenance.*`.
    """
    now = table.environment.now_ms()
    measured = health(
        table.catalog, table.identifier, environment=table.environment, project=project
    )
    policy = policy_of(table.metadata.properties, project)
    actions = tuple(decide(measured, policy, now))
    return TableState(
        health=measured,
        policy=policy,
        actions=actions,
        beyond_since_ms=since.get(table.name, now) if actions else None,
        history=_history(table.metadata),
    )


def _history(metadata: TableMetadata) -> tuple[Moment, ...]:
    line = list(metadata.ancestors(metadata.current_snapshot_id))[::-1]
    step = -(-len(line) // _MOST_POINTS) or 1
    chosen = [*line[:-1:step], *line[-1:]]
    return tuple(
        Moment(
            timestamp_ms=snapshot.timestamp_ms,
            files=int(snapshot.summary["total-data-files"]),
            bytes=int(snapshot.summary.get("total-files-size", 0)),
        )
        for snapshot in chosen
        if snapshot.summary.get("total-data-files", "").isdigit()
    )


def state_markdown(
    states: Sequence[TableState], now_ms: int, failed: Mapping[str, str] | None = None
) -> str:
    """The page: a summary, a table with file counts over time, then the needs of each table.

    Args:
        states: the tables that could be measured.
        now_ms: the time.
        failed: the others, each with the reason.
    """
    beyond = [state for state in states if state.actions]
    overdue = [state for state in states if state.overdue(now_ms)]
    files = sum(state.health.data_files for state in states)
    size = sum(state.health.bytes for state in states)
    lines = [
        f"## Lakehouse at {_clock(now_ms)}",
        "",
        f"{len(states)} tables, {files:,} data files, {human_bytes(size)}; "
        f"{len(beyond)} beyond their policy, {len(overdue)} of them for too long.",
        "",
        (
            "| table | rows | size | files | small | deletes | manifests | snapshots | data files "
            "over time | policy |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|--:|---|---|",
        *(_row(state, now_ms) for state in states),
    ]
    for name, reason in (failed or {}).items():
        lines += ["", f"### {plain(name)}", "", f"**cannot be measured**: {plain(reason)}"]
    for state in beyond:
        lines += ["", *_details(state, now_ms)]
    return "\n".join(lines)


def _row(state: TableState, now_ms: int) -> str:
    measured = state.health
    values = [moment.files for moment in state.history]
    picture = "-"
    if values:
        labels = (f"max {max(values):,}", f"now {values[-1]:,}")
        drawn = line(
            [(moment.timestamp_ms, moment.files) for moment in state.history], labels=labels
        )
        picture = image(
            drawn, f"data files of {plain(state.name)}, at most {max(values):,}, now {values[-1]:,}"
        )
    verdict = (
        "within"
        if not state.actions
        else f"**beyond** for {_age(state, now_ms)}" + (" ⚠" if state.overdue(now_ms) else "")
    )
    cells = (
        code(state.name),
        f"{measured.records:,}",
        human_bytes(measured.bytes),
        f"{measured.data_files:,}",
        f"{measured.small_files:,}",
        f"{measured.delete_files:,}",
        f"{measured.manifests:,}",
        f"{measured.snapshots:,}",
        picture,
        verdict,
    )
    return f"| {' | '.join(cells)} |"


def _details(state: TableState, now_ms: int) -> list[str]:
    lines = [f"### {plain(state.name)}", ""]
    for action in state.actions:
        wait = "" if action.due_ms <= now_ms else f", waits until {_clock(action.due_ms)}"
        lines.append(f"- **{action.kind}**: {plain(action.reason)}{wait}")
    worst = [part for part in state.health.partitions if part.removable_files > 0][
        :_MOST_PARTITIONS
    ]
    if worst:
        lines += [
            "",
            "| partition | files | small | after compaction | size |",
            "|---|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {code(part.partition or '(whole table)')} | {part.data_files:,} | "
            f"{part.small_files:,} | {part.expected_files:,} | {human_bytes(part.bytes)} |"
            for part in worst
        ]
    return lines


def _age(state: TableState, now_ms: int) -> str:
    return human_ms(max(0, now_ms - (state.beyond_since_ms or now_ms)))


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


Point = tuple[float, float]

_INK, _FILL, _TEXT = "#4f43dd", "#e4e2fa", "#6b7280"
_WIDTH, _HEIGHT, _MARGIN = 220, 40, 2.0
_CHARACTER = 6


def line(points: Sequence[Point], labels: Sequence[str] = ()) -> str:
    """An SVG document: a step line from left to right, filled to zero.

    Args:
        points: (time, value), in order of time; values below zero count as zero.
        labels: at the right, from top to bottom, such as the greatest and the last value.
    """
    beside = max((8 + _CHARACTER * len(label) for label in labels), default=0)
    room = _WIDTH - 2 * _MARGIN - beside
    first, last = (points[0][0], points[-1][0]) if points else (0.0, 0.0)
    most = max((value for _, value in points), default=0.0) or 1.0

    def x(time: float) -> float:
        return _MARGIN + (room * (time - first) / (last - first) if last > first else room)

    def y(value: float) -> float:
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * max(value, 0.0) / most

    path, before = [], 0.0
    for number, (time, value) in enumerate(points):
        if number:
            path.append(f"L{x(time):.1f},{y(before):.1f}")
        path.append(f"{'L' if number else 'M'}{x(time):.1f},{y(value):.1f}")
        before = value
    if len(points) == 1:
        path = [f"M{_MARGIN},{y(before):.1f}", f"L{x(last):.1f},{y(before):.1f}"]
    drawn = "".join(path)
    start = _MARGIN if len(points) == 1 else x(first)
    area = (
        f"{drawn}L{x(last):.1f},{_HEIGHT - _MARGIN}L{start:.1f},{_HEIGHT - _MARGIN}Z"
        if points
        else ""
    )
    texts = "".join(
        f'<text x="{_WIDTH - beside + 4}" '
        f'y="{11 + number * (_HEIGHT - 14) / max(1, len(labels) - 1):.0f}">'
        f"{html.escape(label, quote=False)}</text>"
        for number, label in enumerate(labels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 '
        f'{_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="10" fill="{_TEXT}"><path '
        f'd="{area}" fill="{_FILL}"/><path d="{drawn}" fill="none" stroke="{_INK}" '
        f'stroke-width="1.5"/>{texts}</svg>'
    )


def image(svg: str, title: str) -> str:
    """Markdown that shows an SVG document; `title` for those who cannot see it."""
    return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
