"""Rows of assets with blocking checks: what a check has not passed is never published.

The oracle is a model of the write modes. Each check also looks at what is published while it runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

import lakehouse as lh
from lakehouse.orchestration import (
    DerivedTable,
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    Suite,
    expect,
    suite_checks,
)
from tests.hostile.foreign_mutants import Mutant

KEY = dg.AssetKey(["marts", "paid"])
SCHEMA = {"id": pl.Int64, "amount": pl.Float64}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
SEPARATE = ("by input", "by resource", "suite")
IN_STEP = ("after", "before", "together", "both")
Rows = list[tuple[int, float]]


class Audited:
    """An asset with checks of one style, and what is published of it."""

    def __init__(self, rng: random.Random, folder: Path, instance: dg.DagsterInstance) -> None:
        self.uri, self.instance = (folder / "lake").as_uri(), instance
        self.resource = LakehouseResource(catalog=self.uri)
        self.style = rng.choice([*SEPARATE, *IN_STEP])
        self.derived = self.style in SEPARATE and rng.random() < 0.3
        self.mode = "overwrite" if self.derived else rng.choice(["overwrite", "append", "upsert"])
        self.rows: Rows = []
        self.model: Rows = []
        self.seen: list[Rows] = []

    def published(self) -> Rows:
        """What readers see."""
        lake = lh.load_catalog(self.uri)
        if not lake.table_exists("marts.paid"):
            return []
        frame = lake.load_table("marts.paid").scan().to_polars()
        return sorted(frame.select("id", "amount").rows())

    def _judge(self, amounts: pl.Series) -> dg.AssetCheckResult:
        self.seen.append(self.published())
        return dg.AssetCheckResult(passed=bool((amounts > 0).all()))

    def _asset(self) -> dg.AssetsDefinition:
        if self.derived:
            return DerivedTable(
                name="marts.paid",
                inputs=("raw.paid",),
                transform=lambda inputs: inputs["raw.paid"],
                engine="polars",
            ).build(None)
        keys = {"upsert_keys": ["id"]} if self.mode == "upsert" else {}
        spec = dg.AssetCheckSpec("own", asset=KEY, blocking=True)

        def result() -> dg.AssetCheckResult:
            return self._judge(pl.Series([amount for _, amount in self.rows]))

        @dg.asset(
            key=KEY,
            metadata={"write_mode": self.mode, **keys},
            check_specs=[spec] if self.style in IN_STEP else None,
        )
        def paid() -> Iterator[Any]:
            frame = pl.DataFrame(self.rows, SCHEMA, orient="row")
            if self.style == "together":
                yield dg.MaterializeResult(value=frame, check_results=[result()])
                return
            if self.style == "before":
                yield result()
            yield dg.Output(frame)
            if self.style in ("after", "both"):
                yield result()

        return paid

    def _checks(self) -> list[Any]:
        if self.style == "suite":
            positive = expect("column_values_to_be_between", column="amount", min_value=0)
            return suite_checks(KEY, [Suite("positive", (positive,))])
        if self.style in ("by input", "both") and not self.derived:

            @dg.asset_check(asset=KEY, blocking=True)
            def given(paid: pl.DataFrame) -> dg.AssetCheckResult:
                return self._judge(paid["amount"])

            return [given]
        if self.style in ("by resource", "by input"):

            @dg.asset_check(asset=KEY, blocking=True)
            def found(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
                table = lakehouse.lake().load_table("marts.paid")
                return self._judge(table.scan().to_polars()["amount"])

            return [found]
        return []

    def run(self, rows: Rows) -> None:
        """The asset with other rows. Raises AssertionError."""
        self.rows, self.seen = rows, []
        if self.derived:
            lake = self.resource.lake()
            frame = pl.DataFrame(rows, SCHEMA, orient="row").to_arrow()
            if not lake.table_exists("raw.paid"):
                lake.create_table("raw.paid", frame.schema)
            lake.load_table("raw.paid").overwrite(frame)
        done = dg.materialize(
            [self._asset(), *self._checks()],
            resources={
                "io_manager": LakehouseIOManager(lakehouse=self.resource),
                "lakehouse": self.resource,
                "spark": LakehouseSpark(),
            },
            instance=self.instance,
            run_config=QUIET,
            raise_on_error=False,
        )
        right = self.model
        if self._passes():
            right = sorted(rows)
            if self.mode == "append":
                right = sorted([*self.model, *rows])
            elif self.mode == "upsert":
                right = sorted((dict(self.model) | dict(rows)).items())
        what = f"{self.style}, {self.mode}, {rows} onto {self.model}"
        if self.seen and self.seen[0] != self.model:
            raise AssertionError(f"{what}: published while it was checked: {self.seen[0]}")
        if done.success != self._passes():
            raise AssertionError(f"{what}: the run {'succeeded' if done.success else 'failed'}")
        if self.published() != right:
            raise AssertionError(f"{what}: {self.published()} instead of {right}")
        refs = list(self.resource.lake().load_table("marts.paid").refs())
        if refs not in ([], ["main"]):
            raise AssertionError(f"{what}: left {refs}")
        self.model = right

    def _passes(self) -> bool:
        """Whether the checks do: those of rows alone look at those of this run."""
        whole = self.style not in ("after", "before", "together")
        before = self.model if whole and self.mode != "overwrite" else []
        written = {one for one, _ in self.rows}
        if self.mode == "upsert":
            before = [row for row in before if row[0] not in written]
        return all(amount > 0 for _, amount in [*before, *self.rows])


def round_of(seed: int, folder: Path, *_: object) -> None:
    """A few runs of an asset whose rows pass its checks or do not. Raises AssertionError."""
    rng = random.Random(seed)
    with dg.DagsterInstance.ephemeral() as instance:
        asset = Audited(rng, folder, instance)
        for _ in range(rng.randint(1, 3)):
            ids = rng.sample(range(6), rng.randint(1, 3))
            bad = rng.random() < 0.5
            asset.run([(one, -1.0 if bad and one == ids[0] else rng.random() + 1) for one in ids])


_CHECKS = "orchestration.assets.blocking_checks"
MUTANTS = [
    Mutant(
        "14: rows of plain assets are published before their checks",
        f"{_CHECKS}:BlockingChecks.of",
        "return cls(step, asset, frozenset(separate), in_step) if separate or in_step else None",
        "return None",
    ),
    Mutant(
        "14: rows are published before the checks of the asset's own step",
        "orchestration.assets.lakehouse_io_manager:LakehouseIOManager._store",
        "staged.snapshot if checks.in_step else published()",
        "published()",
        seed=5,
    ),
    Mutant(
        "14: a check that fails stops no publication",
        "ingestion.audit:_refuse",
        "outcome.blocking and not outcome.passed",
        "False",
    ),
]
