"""Waiting out an outage: what is transient is tried again, with jitter, until a total."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from lakehouse.environment import Environment
from lakehouse.errors import InvalidPropertyError, StorageError

log = logging.getLogger(__name__)

_DEFAULT_MS = "60000"
_FIRST_WAIT_SECONDS = 0.1
_WAIT_SECONDS_MAX = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what failed for a transient reason is tried again.

    Attributes:
        total_ms: no try begins later than this after the first; milliseconds.
        environment: clock, sleep and jitter.
    """

    total_ms: int = int(_DEFAULT_MS)
    environment: Environment = field(default_factory=Environment.system)

    def call(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, called again while it raises a retryable StorageError.

        The first failure is logged, the last one raised; any other error is raised at once.
        """
        if self.total_ms == 0:
            return attempt()
        started = self.environment.now_ms()

        def is_over(state: RetryCallState) -> bool:
            waited = self.environment.now_ms() - started
            return waited + state.upcoming_sleep * 1000 > self.total_ms

        def tell(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                seconds = self.total_ms // 1000
                error = state.outcome.exception()
                log.warning("Trying again for up to %d s: %s", seconds, error)

        return Retrying(
            retry=retry_if_exception(_is_transient),
            wait=self._wait_seconds,
            stop=is_over,
            sleep=self.environment.sleep,
            before_sleep=tell,
            reraise=True,
        )(attempt)

    def _wait_seconds(self, state: RetryCallState) -> float:
        """Between half and one and a half of a time that doubles."""
        wait = min(
            _FIRST_WAIT_SECONDS * 2.0 ** min(state.attempt_number - 1, 30), _WAIT_SECONDS_MAX
        )
        return wait * (0.5 + self.environment.random())


def patience(
    properties: Mapping[str, str], name: str, environment: Environment | None = None
) -> Patience:
    """The patience that a property says: milliseconds, 60000 if it says nothing; 0: none.

    Raises:
        InvalidPropertyError: no number of milliseconds.
    """
    text = properties.get(name, _DEFAULT_MS)
    if not text.isdecimal():
        raise InvalidPropertyError(f"{name} is a number of milliseconds, not {text!r}")
    return Patience(int(text), environment or Environment.system())


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, StorageError) and error.retryable
