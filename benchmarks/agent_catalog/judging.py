"""`python -m benchmarks.agent_catalog.judging`: statements judged after a commit, by metadata.

1,000 statements on 100 tables, ten a table: keys, bounds, nulls, codes, freshness, row ratios,
owners, descriptions. Measured after each commit to one of the tables, with what was known before,
and from nothing. The evidence that metadata cannot decide is run once before the measurement.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse as lh
from benchmarks.agent_catalog.lakes import state_all
from lakehouse.curation.survey import survey
from lakehouse.semantics.statement_yaml import draft_of

RESULT = Path(__file__).parents[1] / "results" / "agent_judging.json"
SCHEMA = pa.schema(
    {"id": pa.int64(), "code": pa.int32(), "amount": pa.float64(), "day": pa.date32()}
)
DAY = dt.date(2025, 6, 1)
CLAIMS: tuple[dict[str, Any], ...] = (
    {"kind": "description", "text": "A table."},
    {"kind": "owner", "owner": "Ann"},
    {"kind": "grain", "key": ["id"]},
    {"kind": "unit", "column": "amount", "unit": "EUR",
     "evidence": {"check": "bounds", "column": "amount", "min": 0, "max": 1000}},
    {"kind": "warning", "column": "id", "text": "x",
     "evidence": {"check": "null_share", "column": "id"}},
    {"kind": "warning", "column": "code", "text": "y",
     "evidence": {"check": "bounds", "column": "code", "min": 0, "max": 9}},
    {"kind": "warning", "column": "day", "text": "z",
     "evidence": {"check": "null_share", "column": "day"}},
    {"kind": "freshness", "column": "day",
     "evidence": {"check": "newest", "column": "day", "at_least": "2025-01-01"}},
    {"kind": "warning", "text": "v", "evidence": {"check": "row_ratio", "min": 0.01, "max": 100}},
    {"kind": "description", "column": "code", "text": "A code."},
)  # fmt: skip


def build(folder: str, count: int) -> lh.Lakehouse:
    """Tables of a few files, and ten statements about each."""
    lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse")
    names = [f"raw.t{number:03}" for number in range(count)]
    for name in names:
        table = lake.create_table(name, SCHEMA, properties={"owner": "Ann"})
        for _ in range(3):
            table.append(rows())
    drafts = []
    for number, name in enumerate(names):
        for at, claim in enumerate(CLAIMS):
            written = json.loads(json.dumps(claim))
            if written.get("evidence", {}).get("check") == "row_ratio":
                written["evidence"]["to"] = names[(number + 1) % count]
            drafts.append(draft_of({**written, "table": name, "id": f"{name}.{at}"}, "judging"))
    state_all(lake, drafts)
    return lake


def rows() -> pa.Table:
    return pa.table(
        {"id": range(100), "code": [n % 9 for n in range(100)],
         "amount": [float(n) for n in range(100)], "day": [DAY] * 100}, schema=SCHEMA,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--json", type=Path, default=RESULT)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = build(folder, arguments.tables)
        nothing = _timed(lambda: survey(lake).standings())
        seen = survey(lake)
        seen.standings()
        looked, judged, whole = [], [], []
        for number in range(arguments.commits):
            lake.load_table(f"raw.t{number % arguments.tables:03}").append(rows())
            began = time.perf_counter()
            seen = survey(lake, earlier=seen)
            between = time.perf_counter()
            states = seen.standings()
            ended = time.perf_counter()
            looked.append((between - began) * 1000)
            judged.append((ended - between) * 1000)
            whole.append((ended - began) * 1000)
        fresh = survey(lake)
        afresh = _timed(fresh.standings)
        assert fresh.standings() == states
    result = {
        "benchmark": "agent_judging",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "statements": len(states),
        "tables": arguments.tables,
        "states": dict(Counter(str(state.state) for state in states.values())),
        "after_a_commit_ms": _spread(whole),
        "of_it_reading_the_catalog_ms": _spread(looked),
        "of_it_judging_ms": _spread(judged),
        "all_judged_again_ms": round(afresh, 1),
        "read_and_judged_from_nothing_ms": round(nothing, 1),
    }
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for name, value in result.items():
        print(f"{name}: {value}")


def _timed(run: Any) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": round(ordered[len(ordered) // 2], 1), "most": round(ordered[-1], 1)}


if __name__ == "__main__":
    main()
