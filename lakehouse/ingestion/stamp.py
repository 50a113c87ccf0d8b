"""Who wrote a snapshot: the way from a table back to the run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import orjson

from lakehouse.ingestion.landing_ledger import day_ranges
from lakehouse.spec.metadata.snapshot import ASSET_KEY, PARTITION, RUN_ID

CHANGED_DAYS = "lakehouse.changed-days"
"""Days that a snapshot changed, as JSON ranges, where its files hold rows of other days as well."""
AUDIT_BRANCH = "audit-"
"""How names of branches begin on which steps stage what they want to publish."""
_COMMIT_ID = re.compile(r"[!#-\[\]-~]{1,200}")
_REF_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class RunStamp:
    """The step of a run that writes.

    Attributes:
        run_id: Dagster's run id.
        asset_key: slash-separated.
        partition: partition key, or `first...last` of a run over several; None for assets without
            partitions.
    """

    run_id: str
    asset_key: str
    partition: str | None = None

    @classmethod
    def of(cls, run_id: str, asset_key: str, keys: Sequence[str]) -> RunStamp:
        """The stamp of a step that writes partitions of an asset; none of one that has none."""
        ends = dict.fromkeys((keys[0], keys[-1])) if keys else ()
        return cls(run_id, asset_key, "...".join(ends) or None)

    def summary(self, replaced: Sequence[date] | None = None) -> dict[str, str]:
        """Entries for a snapshot's summary.

        Args:
            replaced: the days whose rows are replaced, and no others; None: that is not known.
        """
        entries = {RUN_ID: self.run_id, ASSET_KEY: self.asset_key}
        if replaced is not None:
            ranges = [(str(first), str(last)) for first, last in day_ranges(sorted(replaced))]
            entries[CHANGED_DAYS] = orjson.dumps(ranges).decode()
        return entries if self.partition is None else entries | {PARTITION: self.partition}

    def commit_id(self, what: str) -> str:
        """A name for one write of this step; the same in each retry, so that it commits once."""
        name = f"{self.run_id}:{self.asset_key}:{self.partition or ''}:{what}"
        # keys of assets and partitions may be any text: their digest stands for what a commit id
        # cannot hold
        return name if _COMMIT_ID.fullmatch(name) else f"{self.run_id}:{_digest(name)}:{what}"

    def branch(self) -> str:
        """The branch on which this step stages what it wants to publish."""
        name = self.asset_key.rpartition("/")[2]
        if not _REF_NAME.fullmatch(name):
            name = _digest(self.asset_key)
        return f"{AUDIT_BRANCH}{self.run_id.partition('-')[0]}-{name}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
