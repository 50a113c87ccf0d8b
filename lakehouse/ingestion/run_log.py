"""What a run writes into its log while it works."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

from rich.console import Console, RenderableType

from lakehouse.maintenance.shown_plan import Progress

Say = Callable[[str], None]
"""Takes one message, as `context.log.info` does."""

_SECONDS = 5.0


def silent(message: str) -> None:
    """Say nothing."""


def progress_lines(
    say: Say, *, every: float = _SECONDS, clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Progress as messages: one every few seconds, and the last of a stage that took longer.

    What has not moved since the last message is not said again.

    Args:
        say: takes the messages.
        every: seconds between two.
        clock: tells seconds.

    >>> tick = iter(range(100))
    >>> progress = progress_lines(print, every=2, clock=lambda: next(tick))
    >>> for done in range(5):
    ...     progress("files read", done, 4)
    files read: 1 of 4
    files read: 3 of 4
    files read: 4 of 4
    """
    last, said, before = clock(), False, ("", 0)

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last, said, before
        now = clock()
        if (stage, done) != before and (now - last >= every or (said and done == total)):
            last, said, before = now, done < total, (stage, done)
            say(f"{stage}: {done:,} of {total:,}")

    return progress


def as_text(shown: RenderableType) -> str:
    """A plan, result or table as the terminal shows it, without colours."""
    text = io.StringIO()
    Console(file=text, width=140, highlight=False).print(shown)
    return text.getvalue().rstrip()
