"""Assets of plain Dagster, on demand; by itself their automation conditions compute them."""

from __future__ import annotations

import dagster as dg

refresh_marts = dg.define_asset_job(
    "refresh_marts",
    dg.AssetSelection.assets("marts/busiest_airports"),
    description="Compute the marts that are plain assets again, from what the tables hold now.",
)
