"""How often, how long and how irregularly a lost race is tried again (`commit.retry.*`)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.environment import Environment
from lakehouse.spec.table_properties import TableProperties

_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    Attributes:
        retries_max: tries after the first.
        wait_ms_min: upper end of the first wait.
        wait_ms_max: upper end of every wait.
        total_ms_max: no try begins later than this after the first.
    """

    retries_max: int
    wait_ms_min: int
    wait_ms_max: int
    total_ms_max: int

    def wait_ms(self, retry: int, random: float) -> float:
        """Milliseconds before try `retry` (1 is the first repetition); `random` in [0, 1).

        The whole range from zero is used: writers that lost the same race must not meet again.
        """
        return random * min(
            float(self.wait_ms_max), float(self.wait_ms_min) * 2.0 ** min(retry - 1, 30)
        )

    def pause(self, retry: int, started_ms: int, environment: Environment) -> bool:
        """Wait before try `retry`; False when there is none left."""
        if retry > self.retries_max:
            return False
        wait_ms = self.wait_ms(retry, environment.random())
        if environment.now_ms() + wait_ms - started_ms > self.total_ms_max:
            return False
        environment.sleep(wait_ms / 1000)
        return True


def commit_backoff(properties: TableProperties, *, never_conflicts: bool = False) -> Backoff:
    """For attempts that lost a race.

    Args:
        properties: the table's.
        never_conflicts: the operations hold on every base (appends): where
            `commit.retry.num-retries` is not set they are tried until
            `commit.retry.total-timeout-ms`, because one of them wins each race.
    """
    unset = TableProperties.retry_count.name not in properties.raw
    return Backoff(
        _UNLIMITED if never_conflicts and unset else properties.retry_count,
        properties.retry_min_wait_ms,
        properties.retry_max_wait_ms,
        properties.retry_total_timeout_ms,
    )


def status_backoff(properties: TableProperties) -> Backoff:
    """For looking up an unknown outcome."""
    return Backoff(
        properties.status_check_count,
        properties.status_check_min_wait_ms,
        properties.status_check_max_wait_ms,
        properties.retry_total_timeout_ms,
    )
