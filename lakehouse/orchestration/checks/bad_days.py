"""Days, or other partitions, that failed a check stay with it until they are mended.

Dagster shows the last result of a check, whatever days its run was about: a good day would turn the
check of a bad one green. So each result says which days are bad, in its metadata, and the next one
begins with them. A day is taken from the list when it is written again and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from lakehouse.ingestion.audit import BadDay, CheckOutcome

BAD_DAYS = "lakehouse/bad_days"
_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


@dataclass(frozen=True)
class DayMemory:
    """What earlier results of an asset's checks said about days.

    Attributes:
        instance: where they are recorded.
        days: that this run has written, and so are judged again.
    """

    instance: dg.DagsterInstance
    days: Sequence[object] = ()

    def still_bad(
        self, key: dg.AssetKey, check: str, failed: Mapping[Any, BadDay]
    ) -> dict[str, BadDay]:
        """The days that are bad after this run, as text, the worst first.

        Args:
            key: of the asset.
            check: its name.
            failed: the days that failed in this run.
        """
        before = self._before(dg.AssetCheckKey(key, check))
        judged = set(map(str, self.days))
        bad = {day: what for day, what in before.items() if day not in judged}
        bad |= {str(day): what for day, what in failed.items()}
        return dict(sorted(bad.items(), key=lambda item: (-item[1].unexpected, item[0])))

    def _before(self, check: dg.AssetCheckKey) -> dict[str, BadDay]:
        last = self.instance.event_log_storage.get_asset_check_execution_history(
            check, limit=1, status=_EVALUATED
        )
        for record in last:
            event = record.event.dagster_event if record.event else None
            if event is not None:
                entry = event.asset_check_evaluation_data.metadata.get(BAD_DAYS)
                return _from_json(entry.value if entry is not None else {})
        return {}


def described(bad: Mapping[str, BadDay], judged: Sequence[object]) -> str:
    """One line about the days that are bad, the worst first, as `still_bad` has them."""
    if not bad:
        return ""
    day, worst = next(iter(bad.items()))
    since = "" if day in set(map(str, judged)) else ", from an earlier run"
    more = f" ({len(bad)} days are bad)" if len(bad) > 1 else ""
    return f"{day}{since}{more}: {worst.why}"


def metadata(bad: Mapping[str, BadDay]) -> dict[str, dg.MetadataValue]:
    """What the next result begins with."""
    days = {day: [what.unexpected, what.why[:200]] for day, what in bad.items()}
    return {BAD_DAYS: dg.MetadataValue.json(days)} if days else {}


def bad_days_of(
    outcome: CheckOutcome,
    days: Sequence[Any],
    check: Callable[[Sequence[Any]], CheckOutcome],
    suspects: Mapping[Any, BadDay] | None = None,
) -> CheckOutcome:
    """The outcome with the days that it failed for, which halving finds.

    Args:
        outcome: of all the days together.
        days: that were checked.
        check: the same check of some of the days.
        suspects: days that fail by themselves, as counts of each have it. Then the worst alone is
            checked, which explains it; where its check passes, halving finds the days.
    """
    if outcome.passed:
        return outcome
    if suspects:
        worst = max(suspects, key=lambda day: suspects[day].unexpected)
        judged = check([worst])
        if not judged.passed:
            return replace(outcome, bad_days={**suspects, worst: _bad(judged)})
    return replace(outcome, bad_days=_failing(outcome, days, check))


def _failing(
    outcome: CheckOutcome,
    days: Sequence[Any],
    check: Callable[[Sequence[Any]], CheckOutcome],
) -> dict[Any, BadDay]:
    if outcome.passed:
        return {}
    failing: dict[Any, BadDay] = {}
    if len(days) > 1:
        middle = len(days) // 2
        for half in (days[:middle], days[middle:]):
            failing |= _failing(check(half), half, check)
    # what is wrong only with some days together is wrong with each of them
    return failing or dict.fromkeys(days, _bad(outcome))


def _bad(outcome: CheckOutcome) -> BadDay:
    unexpected = outcome.metadata.get("unexpected_values", 0)
    return BadDay(
        unexpected if isinstance(unexpected, int) else 0, "; ".join(outcome.failures)[:1000]
    )


def _from_json(value: object) -> dict[str, BadDay]:
    if not isinstance(value, Mapping):
        return {}
    return {day: BadDay(int(n), str(why)) for day, (n, why) in value.items()}
