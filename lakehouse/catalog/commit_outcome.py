"""Tells which errors of a commit prove that it did not happen, and guards cleanup after it.

A commit happens at one moment: when the catalog swaps its pointer. An error before the swap is a
certain failure and is marked as such here. The swap itself has three outcomes: committed, certainly
not committed, unknown. What tidies up after the swap logs its errors and never raises, because the
commit stands. Callers that want to delete their files ask `is_certain` first; if it is false, the
files may belong to a committed snapshot and have to stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lakehouse.errors import CommitConflictError, LakehouseError

log = logging.getLogger(__name__)

_OF_OTHERS = "lakehouse_outcome"
"""What `LakehouseError.commit_outcome` says, on errors that are not ours."""


@contextmanager
def before_the_swap() -> Iterator[None]:
    """Errors that leave the block are certain failures, whatever they are: nothing was sent yet."""
    try:
        yield
    except LakehouseError as error:
        error.commit_outcome = "failed"
        raise
    except Exception as error:
        with suppress(AttributeError):  # of classes that are not Python's
            setattr(error, _OF_OTHERS, "failed")
        raise


def is_certain(error: BaseException) -> bool:
    """Whether the commit that raised this certainly did not happen."""
    if isinstance(error, LakehouseError):
        return error.commit_outcome == "failed" or isinstance(error, CommitConflictError)
    return getattr(error, _OF_OTHERS, None) == "failed"


def after_the_swap(tidying: str, tidy: Callable[[], None]) -> None:
    """Run cleanup after a commit; errors are logged and not raised, because the commit stands.

    Args:
        tidying: what the cleanup does, for the log.
        tidy: the cleanup.
    """
    try:
        tidy()
    # The commit is done: to report a failure would have its files deleted.
    except Exception as error:  # noqa: BLE001
        log.warning("%s was left for later: %s: %s", tidying, type(error).__name__, error)
