"""Which errors of a commit are certain failures, and tidying up that cannot fail a commit.

A commit has a moment before which nothing happened and after which everything did: the swap. An
error from before it is marked here; the swap itself knows three outcomes; and nothing after it is
reported as an error. Whoever cleans up after a commit asks `is_certain`, and leaves everything
where it is when the answer is no.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakehouse.errors import CommitConflictError, LakehouseError

log = logging.getLogger(__name__)

_OUTCOME, _FAILED = "outcome", "failed"


@contextmanager
def before_the_swap() -> Iterator[None]:
    """Errors of this library that leave the block are certain failures: nothing was sent yet."""
    try:
        yield
    except LakehouseError as error:
        error.context[_OUTCOME] = _FAILED
        raise


def is_certain(error: BaseException) -> bool:
    """Whether the commit that raised this certainly did not happen."""
    return isinstance(error, CommitConflictError) or (
        isinstance(error, LakehouseError) and error.context.get(_OUTCOME) == _FAILED
    )


def after_the_swap(tidying: str, tidy: Callable[[], None]) -> None:
    """Run what only tidies up. The commit stands whatever comes of it: what goes wrong is logged.

    Args:
        tidying: what it does, for the log.
        tidy: does it.
    """
    try:
        tidy()
    # The commit is done: to report a failure would have its files deleted.
    except Exception as error:  # noqa: BLE001
        log.warning("%s was left for later: %s: %s", tidying, type(error).__name__, error)
