"""What a simulated run contains."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.simulation.served import LATE, REPEATED

CATALOGS = ("filesystem", "filesystem", "sql", "served", "rest", "rest sql")


@dataclass(frozen=True)
class Plan:
    """What a run may contain. Shrinking takes things away."""

    processes: int = 3
    operations: int = 4
    faults: frozenset[str] = frozenset(
        {
            "refused",
            "timeout",
            "lost reply",
            "delayed",
            LATE,
            REPEATED,
            "torn",
            "full",
            "kill",
            "power",
            "skew",
        }
    )
    kinds: tuple[str, ...] = (
        "append",
        "append",
        "append",
        "append",
        "overwrite",
        "compact",
        "delete",
        "row_delta",
        "row_delta",
        "update",
        "compact",
        "compact",
        "repeat",
        "pick",
        "add_files",
        "expire",
        "rollback",
        "tag",
        "property",
        "manifests",
        "branch",
    )
    fault_rate: float = 0.05
    catalog: str = "filesystem"
    format_version: int = 2
    granularity: str = "file"
    merge_at: int = 4
    real_rows: bool = False
    merging: bool = False
    """Whether processes change rows by key (`row_changes`)."""
    row_mode: str = "merge-on-read"
    between_calls: bool = False
    """Whether others run, processes die and power fails between any two system calls too."""

    @property
    def is_sql(self) -> bool:
        """Whether a database has the pointers."""
        return self.catalog.endswith("sql")

    @property
    def is_behind_server(self) -> bool:
        """Whether processes are clients of our server."""
        return self.catalog.startswith("rest")


REAL_KINDS = (
    "append",
    "append",
    "append",
    "overwrite",
    "compact",
    "delete",
    "delete_where",
    "delete_where",
    "delete_where",
    "pick",
    "repeat",
    "add_files",
    "expire",
    "rollback",
    "manifests",
)
"""What happens where data files hold rows: nobody makes up delete files there."""


MERGE_KINDS = (
    "load",
    "upsert",
    "upsert",
    "change",
    "above",
    "remove",
    "merge",
    "merge",
    "compact",
    "expire",
)


def plan_of(seed: int) -> Plan:
    """Different seeds look at different things."""
    rng = random.Random(seed ^ 0x5EED)
    plan = Plan(
        processes=rng.choice([2, 2, 3, 4]),
        operations=rng.choice([3, 5, 8]),
        fault_rate=rng.choice([0.0, 0.05, 0.1, 0.2]),
    )
    plan = replace(plan, catalog=rng.choice(CATALOGS))
    version, granularity = rng.choice([(2, "file"), (2, "partition"), (3, "file")])
    plan = replace(plan, format_version=version, granularity=granularity)
    plan = replace(plan, between_calls=rng.random() < 0.3)
    chosen = rng.random()
    if chosen < 0.15:
        plan = replace(plan, kinds=REAL_KINDS, real_rows=True)
    elif (
        chosen < 0.35 and not plan.is_behind_server
    ):  # what is lost with the power would have to be told for each of the tables
        kinds = (*plan.kinds, "recreate", "recreate", "orphans", "orphans")
        plan = replace(plan, kinds=kinds, faults=plan.faults - {"power"})
    if rng.random() < 0.5:  # few kinds meet each other more often
        some = {"append", *rng.sample(sorted(set(plan.kinds)), rng.randint(2, 5))}
        plan = replace(plan, kinds=tuple(kind for kind in plan.kinds if kind in some))
    if rng.random() < 0.1:
        mode = rng.choice(("merge-on-read", "merge-on-read", "copy-on-write"))
        plan = replace(plan, kinds=MERGE_KINDS, real_rows=False, merging=True, row_mode=mode)
    return plan
