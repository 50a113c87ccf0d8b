"""The modules that a worker of Spark has loaded, and Python's search for cycles."""

from __future__ import annotations

import gc
import sys

_loaded_then = [0]
"""How many modules were loaded when they were spared last."""


def spare_modules() -> None:
    """Leave what is in memory now out of later collections; to be called at the end of a task.

    PySpark's daemon collects after each task, and goes through everything that the imported modules
    hold, which took half the processor time of a short task. Done again only once a task has
    imported more: what it frees later is never searched for cycles.

    >>> spare_modules()
    >>> gc.get_freeze_count() > 10_000
    True
    >>> gc.unfreeze()
    """
    if len(sys.modules) > _loaded_then[0]:
        _loaded_then[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
