"""What Schemathesis noted of a run, and which of its failures are expected."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.openapi.expected import EXPECTED


@dataclass(frozen=True)
class Failed:
    """A check that failed.

    Attributes:
        operation: method and path.
        check: its name.
        status: of the answer.
        message: what Schemathesis says.
        request: method, target and body.
        answer: the body.
        is_negative: whether the request was to be refused.
    """

    operation: str
    check: str
    status: int
    message: str
    request: str
    answer: str
    is_negative: bool


@dataclass
class Report:
    """One run.

    Attributes:
        requests: how many were answered, by phase.
        statuses: how often each was answered.
        operations: that were asked for.
        checks: how many were made.
        failed: those that failed.
        problems: why it is not the whole run.
    """

    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    operations: set[str] = field(default_factory=set)
    checks: int = 0
    failed: list[Failed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_report(file: Path) -> Report:
    """What an NDJSON report says."""
    report, is_finished = Report(), False
    with file.open() as lines:
        for line in lines:
            ((kind, event),) = json.loads(line).items()
            if kind == "ScenarioFinished":
                _add(report, event)
            elif kind in ("NonFatalError", "FatalError"):
                report.problems.append(f"{kind}: {json.dumps(event)[:500]}")
            is_finished = is_finished or (
                kind == "EngineFinished" and event["stop_reason"] == "completed"
            )
    if not is_finished:
        report.problems.append("the run did not come to its end")
    return report


def _add(report: Report, event: dict[str, Any]) -> None:
    recorder = event["recorder"]
    report.operations.add(recorder["label"])
    interactions = recorder.get("interactions", {})
    for number, one in interactions.items():
        if one.get("response") is None:
            report.problems.append(f"{recorder['label']}: no answer to {one['request']['uri']}")
            continue
        report.requests[event["phase"]] += 1
        report.statuses[one["response"]["status_code"]] += 1
        checks = recorder["checks"].get(number, ())
        report.checks += len(checks)
        mode = recorder["cases"][number]["value"].get("meta", {}).get("generation", {}).get("mode")
        for check in checks:
            if check["status"] == "failure":
                failure = check["failure_info"]["failure"]
                report.failed.append(
                    Failed(
                        recorder["label"],
                        check["name"],
                        one["response"]["status_code"],
                        failure["message"],
                        f"{one['request']['method']} {one['request']['uri']} "
                        f"{_text(one['request'].get('body'))}",
                        _text(one["response"].get("content")),
                        mode == "negative",
                    )
                )


def _text(content: Any) -> str:
    if isinstance(content, dict):
        return base64.b64decode(content["$base64"]).decode(errors="replace")
    return content or ""


def judge(report: Report) -> Iterator[str]:
    """Lines to print; those of what is not expected begin with `UNEXPECTED`."""
    reasons: Counter[str] = Counter()
    unexpected: dict[tuple[str, str, int], list[Failed]] = {}
    for failed in report.failed:
        reason = reason_for(failed)
        if reason is None:
            key = (failed.operation, failed.check, failed.status)
            unexpected.setdefault(key, []).append(failed)
        else:
            reasons[reason] += 1
    for reason, count in reasons.most_common():
        yield f"{count:6}  {reason}"
    for (operation, check, status), found in unexpected.items():
        yield f"UNEXPECTED  {len(found)}: {operation}: {check}, answered {status}"
        yield f"    {' '.join(found[0].message.split())[:300]}"
        yield f"    > {found[0].request[:500]}"
        yield f"    < {found[0].answer[:300]}"
    for problem in report.problems:
        yield f"UNEXPECTED  {problem}"
    others = len(report.failed) - reasons.total()
    yield f"{summary(report)}: {reasons.total()} failed as expected, {others} otherwise"


def summary(report: Report) -> str:
    """Counts in one line."""
    phases = ", ".join(f"{count} {phase}" for phase, count in report.requests.items())
    classes: Counter[str] = Counter()
    for status, count in report.statuses.items():
        classes[f"{status // 100}xx"] += count
    answers = ", ".join(f"{classes[one]} {one}" for one in sorted(classes))
    return (
        f"{len(report.operations)} operations, {report.requests.total()} requests ({phases}), "
        f"answered {answers}; {report.checks} checks"
    )


def reason_for(failed: Failed) -> str | None:
    """Why it is expected; None: it is not."""
    for one in EXPECTED:
        if one.is_met_by(failed):
            return one.reason
    return None
