"""What an evolution hands to a commit."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.spec.metadata.table_requirements import Requirement
from lakehouse.spec.metadata.table_updates import Update


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit assumes and what it changes. False when there is nothing to change."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updates)
