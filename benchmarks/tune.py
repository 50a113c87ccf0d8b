"""Layouts found by a trial, the defaults and an exhaustive grid: `python -m benchmarks.tune`.

Twelve tables, made by seeds, come in a hundred small files each and are asked a few queries. Each
is tuned unattended: a trial on a sample, adoption where the trial is for it. The grid tries on the
whole table every order, size of row groups, encoding, level that the trial may choose from, with
and without its Bloom filters.
Bytes of data files; processor time of the queries by our reader, the least of some runs.

With tables of yours: `--tables FOLDER --queries FILE --json OUT`: a subfolder of Parquet files for
each table; a line `table: SQL condition` for each query.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

from benchmarks.untried import untried  # noqa: E402
from lakehouse.errors import InvalidInputError, LakehouseError  # noqa: E402
from lakehouse.lake import Lakehouse, load_catalog  # noqa: E402
from lakehouse.spec.table_properties import BLOOM_PREFIX  # noqa: E402
from lakehouse.table import Table  # noqa: E402
from lakehouse.tuning.adoption import adopt, step  # noqa: E402
from lakehouse.tuning.layouts import GROUP_ROWS, LEVEL, Layout  # noqa: E402
from lakehouse.tuning.trial import Trial, check_queries, tune  # noqa: E402

EVERYTHING = "true"
TARGET_BYTES, TARGET_READ, NEAR_GRID, MOST_SAMPLED = 0.6, 0.5, 1.1, 0.02
GRID_ORDERS, GRID_GROUPS, GRID_LEVELS = 7, (None, 32_768, 8_192), (None, "9")


@dataclass(frozen=True)
class Cost:
    """Of a table: bytes of its data files, milliseconds of processor for each query."""

    bytes: int
    query_ms: tuple[float, ...]

    @property
    def read_ms(self) -> float:
        """Of all queries."""
        return sum(self.query_ms)

    def score(self, other: Cost) -> float:
        """Geometric mean of the ratios of bytes and processor time: below 1 is better."""
        return math.sqrt(
            max(1, self.bytes) / max(1, other.bytes) * self.read_ms / max(1e-9, other.read_ms)
        )


Subject = tuple[Table, int | None]
"""A table and the snapshot that is asked; None: the current one."""


def measure(subjects: Sequence[Subject], queries: Sequence[str], repeat: int) -> list[Cost]:
    """What tables take, and what their queries take in turns, the least of some runs."""
    least = [[math.inf] * len(queries) for _ in subjects]
    for at, where in enumerate(queries):
        for _ in range(repeat):
            for times, (table, snapshot) in zip(least, subjects, strict=True):
                start = time.process_time()
                table.scan(where=where, snapshot_id=snapshot).to_arrow()
                times[at] = min(times[at], (time.process_time() - start) * 1000)
    sizes = [
        sum(file.file_size_in_bytes for file in table.scan(snapshot_id=snapshot).plan().files)
        for table, snapshot in subjects
    ]
    return [Cost(size, tuple(times)) for size, times in zip(sizes, least, strict=True)]


def load(lake: Lakehouse, name: str, parts: Sequence[Path]) -> Table:
    """A table by the defaults, one append for each Parquet file, with the columns of all."""
    schema = pa.unify_schemas(
        [_storable(pq.read_schema(part)) for part in parts], promote_options="permissive"
    )
    table = lake.create_table(f"bench.{name}", schema)
    for part in parts:
        rows = pq.ParquetFile(part).read()
        for field in schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        # nanoseconds are cut; what else does not fit is refused
        rows = pa.table(
            [
                rows[field.name].cast(field.type, safe=not pa.types.is_temporal(field.type))
                for field in schema
            ],
            schema=schema,
        )
        if rows.num_rows:
            table.append(rows)
    return table


def _storable(schema: pa.Schema) -> pa.Schema:
    """A schema with types that Iceberg has."""
    return pa.schema([pa.field(field.name, _kind(field.type)) for field in schema])


def _kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_unsigned_integer(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_kind(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _kind(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_kind(kind.key_type), _kind(kind.item_type))
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


def grid(lake: Lakehouse, table: Table, trial: Trial, queries: Sequence[str], repeat: int) -> Table:
    """A table with the best of all layouts of the grid, by the score against the defaults."""
    rows = table.scan().to_arrow()
    numbers = count()
    best, least, orders = table, 1.0, []
    for tried in trial.tried:
        if tried.layout.sort_by not in orders:
            orders.append(tried.layout.sort_by)
    orders = sorted(orders, key=len)[:GRID_ORDERS] + orders[GRID_ORDERS:][-2:]
    named = [pair for tried in trial.tried for pair in tried.layout.properties.items()]
    blooms = {name: text for name, text in named if name.startswith(BLOOM_PREFIX)}
    encoded = {
        name: text for name, text in named if name not in (GROUP_ROWS, LEVEL) and name not in blooms
    }
    for order, group, level, filters in product(
        orders, GRID_GROUPS, GRID_LEVELS, ({}, blooms) if blooms else ({},)
    ):
        properties = dict(filters) if group is None else {**filters, GROUP_ROWS: str(group)}
        if level is not None:
            properties |= {**encoded, LEVEL: level}
        name = f"bench.grid{next(numbers)}"
        other = lake.create_table(name, table.schema(), sort_by=order, properties=properties)
        other.append(rows)
        default, grid_best = measure([(table, None), (other, None)], queries, repeat)
        score = grid_best.score(default)
        gone = other
        if score < least:
            gone, best, least = best, other, score
        if gone is not table:
            lake.drop_table(gone.name, purge=True)
    return best


def tuned(
    lake: Lakehouse, name: str, parts: Sequence[Path], queries: Sequence[str], args: Any
) -> dict[str, Any]:
    """One table's result."""
    table = load(lake, name, parts)
    wheres = list(queries) or [EVERYTHING]
    workload = check_queries(wheres, table.schema())
    before, snapshot = table.scan().to_arrow(), table.current_snapshot()
    trial = tune(table, workload)
    best = None if args.no_grid else grid(lake, table, trial, wheres, args.repeat)
    if trial.verdict.adopt and trial.proposed is not None:
        trial = adopt(table, trial)
    if trial.verdict.adopt:
        step(table)
    was = (table, None if snapshot is None else snapshot.snapshot_id)
    subjects = [was, *([] if best is None else [(best, None)])]
    if trial.verdict.adopt:
        subjects.append((table, None))
    default, *others = measure(subjects, wheres, args.repeat)
    after = others.pop() if trial.verdict.adopt else default
    least = others[0] if others else None
    if table.scan().to_arrow().num_rows != before.num_rows:
        raise AssertionError(f"{name}: rows were lost")
    more = {}
    if args.untried:

        def costs(tables: Sequence[Table]) -> list[tuple[float, float]]:
            found = measure([(other, None) for other in tables], wheres, args.repeat)
            return [(cost.bytes, cost.read_ms) for cost in found]

        more["untried"] = untried(lake, table, wheres, costs)
    ratios = [now / was for now, was in zip(after.query_ms, default.query_ms, strict=True)]
    worst = max(range(len(wheres)), key=lambda at: ratios[at])
    proposed = trial.proposed.layout if trial.verdict.adopt and trial.proposed else Layout()
    return {
        "rows": before.num_rows,
        "files": len(parts),
        "layout": proposed.text(),
        "adopted": trial.verdict.adopt,
        "why": trial.verdict.why,
        "bytes": _three(default.bytes, after.bytes, None if least is None else least.bytes),
        "read_cpu_ms": _three(
            default.read_ms, after.read_ms, None if least is None else least.read_ms
        ),
        "score_to_grid": None if least is None else round(
            after.score(default) / least.score(default), 3
        ),
        "bytes_sampled": trial.sampled_bytes,
        "sampled_share": round(trial.sampled_bytes / max(1, default.bytes), 4),
        "trial_cpu_ms": round(trial.trial_ms, 1),
        "slowest_query": {
            "where": wheres[worst],
            "default_ms": round(default.query_ms[worst], 2),
            "tuned_ms": round(after.query_ms[worst], 2),
            "ratio": round(ratios[worst], 3),
        },
        **more,
    }  # fmt: skip


def _three(default: float, after: float, best: float | None) -> dict[str, float | None]:
    return {
        "default": round(default, 2),
        "tuned": round(after, 2),
        "grid": None if best is None else round(best, 2),
        "ratio": round(after / max(default, 1e-9), 3),
    }


Columns = dict[str, Any]
HOUR_US = 3_600_000_000
WORDS = "the a of lake house table row file page reads writes fast slow big old"
START_US = 1_750_000_000_000_000


@dataclass(frozen=True)
class Part:
    """One of the files that a table comes in."""

    rng: np.random.Generator
    number: int
    count: int
    rows: int

    def times(self) -> pa.Array:
        """Of the part's share of a month, in order."""
        span = 720 * HOUR_US // self.count
        at = START_US + self.number * span + np.sort(self.rng.integers(0, span, self.rows))
        return pa.array(at, pa.timestamp("us", "UTC"))


def _of(rng: np.random.Generator, words: str, rows: int, skew: float = 0.0) -> pa.Array:
    names = np.array(words.split())
    weights = 1.0 / np.arange(1, len(names) + 1) ** skew
    return pa.array(names[rng.choice(len(names), rows, p=weights / weights.sum())])


def events(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    user = rng.zipf(1.3, rows) % 5000
    return {
        "ts": part.times(), "user_id": user,
        "kind": _of(rng, "view click buy scroll", rows, 1.0),
        "country": pa.array([f"c{number % 40:02d}" for number in user]),
        "url": pa.array([f"/product/{number}" for number in rng.integers(0, 3000, rows)]),
        "amount": np.round(rng.gamma(2, 10, rows), 2),
    }  # fmt: skip


def ids(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    order = rng.integers(0, 20_000, rows)
    return {
        "order_id": order, "line": rng.integers(0, 9, rows), "product": order * 7 % 991,
        "customer": order * 31 % 4001, "warehouse": order % 17,
        "quantity": rng.integers(1, 5, rows),
    }  # fmt: skip


def metrics(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    host = rng.integers(0, 200, rows)
    return {
        "at": part.times(), "host": pa.array([f"host-{number:03d}" for number in host]),
        "metric": _of(rng, "cpu memory disk net", rows),
        "value": np.round(host / 10 + rng.normal(0, 0.05, rows), 2), "rack": host // 20,
    }  # fmt: skip


def logs(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    service = rng.integers(0, 30, rows)
    code = rng.choice([200, 200, 200, 200, 304, 404, 500], rows)
    return {
        "at": part.times(),
        "service": pa.array([f"service-{number}" for number in service]),
        "level": _of(rng, "INFO INFO INFO WARN ERROR", rows),
        "message": pa.array([
            f"request {number % 50} to /api/v1/resource/{two} answered by {code}"
            for number, two, code in zip(rng.integers(0, 5000, rows), service, code, strict=True)
        ]),
        "status": code,
    }  # fmt: skip


def wide(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    group = rng.integers(0, 60, rows)
    columns = {f"c{at:02d}": (group * (at + 3)) % (7 + at) for at in range(30)}
    return {"at": part.times(), "unit": group, **columns}


def narrow(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    return {"key": rng.integers(0, 2000, rows), "value": rng.integers(0, 50, rows)}


def skewed(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    tenant = np.minimum(rng.zipf(1.2, rows), 3000)
    return {
        "tenant": tenant, "at": part.times(), "plan": tenant % 4,
        "score": np.round(np.log1p(tenant), 3), "flag": tenant % 2 == 0,
    }  # fmt: skip


def nested(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    device = rng.integers(0, 300, rows)
    return {
        "at": part.times(), "device": device,
        "place": pa.array([
            {"city": f"city {number % 25}", "lat": number / 7, "lon": number / 11}
            for number in device
        ]),
        "tags": pa.array([[f"t{number % 5}", f"t{number % 3}"] for number in device]),
        "reading": np.round(rng.normal(20, 3, rows), 1),
    }  # fmt: skip


def text(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    words = np.array(WORDS.split())
    topic = rng.integers(0, 80, rows)
    return {
        "id": np.arange(rows) + part.number * rows, "topic": topic,
        "author": pa.array([f"author {number * 13 % 97}" for number in topic]),
        "body": pa.array([
            f"topic {number}: " + " ".join(words[(number + np.arange(6) * two) % len(words)])
            for number, two in zip(topic, rng.integers(1, 9, rows), strict=True)
        ]),
    }  # fmt: skip


def decimals(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    account = rng.integers(0, 4000, rows)
    cents = account * 100 + rng.integers(0, 500, rows)
    return {
        "account": account, "booked": part.times().cast(pa.date32()),
        "amount": pa.array(cents).cast(pa.decimal128(20, 0)).cast(pa.decimal128(18, 2)),
        "currency": pa.array(np.array(["EUR", "USD", "CHF"])[account % 3]),
        "branch": account // 100,
    }  # fmt: skip


def sparse(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    kind = rng.integers(0, 12, rows)
    columns = {
        f"field_{at}": pa.array(kind * at + rng.integers(0, 4, rows), mask=kind != at)
        for at in range(12)
    }
    return {"at": part.times(), "kind": kind, **columns}


def series(part: Part) -> Columns:
    rng, rows = part.rng, part.rows
    sensor = rng.integers(0, 50, rows)
    at = part.times()
    hours = at.cast(pa.int64()).to_numpy() / HOUR_US
    level = np.round(sensor + 5 * np.sin(hours / 24), 1)
    return {
        "sensor": sensor,
        "at": at,
        "level": level,
        "battery": np.round(4 - hours % 720 / 720, 2),
    }


TABLES: Mapping[str, tuple[Callable[[Part], Columns], tuple[str, ...]]] = {
    "events": (events, ("user_id = 17", "country = 'c03'", "user_id = 4000 and kind = 'buy'")),
    "ids": (ids, ("order_id = 777", "customer = 310", "true")),
    "metrics": (metrics, ("host = 'host-042'", "host = 'host-101' and metric = 'cpu'", "true")),
    "logs": (logs, ("service = 'service-7'", "service = 'service-9' and level = 'ERROR'")),
    "wide": (wide, ("unit = 7", "unit = 50")),
    "narrow": (narrow, ("key = 5", "key between 100 and 120")),
    "skewed": (skewed, ("tenant = 900", "tenant = 3", "plan = 2")),
    "nested": (nested, ("device = 20", "device between 100 and 110")),
    "text": (text, ("topic = 9", "author = 'author 39'")),
    "decimals": (decimals, ("account = 123", "branch = 20")),
    "sparse": (sparse, ("kind = 3", "kind = 7 and field_7 > 50")),
    "series": (series, ("sensor = 12", "sensor = 3 and level > 5")),
}


def generate(folder: Path, seed: int, rows: int, files: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Write the Parquet files of each table; its name and queries."""
    for number, (name, (make, queries)) in enumerate(TABLES.items()):
        (folder / name).mkdir(parents=True)
        rng = np.random.default_rng([seed, number])
        for part in range(files):
            columns = make(Part(rng, part, files, rows // files))
            pq.write_table(pa.table(columns), folder / name / f"{part:04d}.parquet")
        yield name, queries


def tables_of_user(folder: Path, queries: Path | None) -> Iterator[tuple[str, Sequence[str]]]:
    """Tables of a user's: name and queries."""
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder: --tables names one with a subfolder a table")
    by_table: dict[str, list[str]] = {
        path.name: [] for path in sorted(folder.iterdir()) if path.is_dir()
    }
    text = queries.read_text(encoding="utf-8-sig") if queries else ""
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, where = (part.strip() for part in line.partition(":"))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not colon or not where:
            raise SystemExit(f"{queries}:{number}: {line!r} is not `table: SQL condition`")
        if name not in by_table:
            raise SystemExit(f"{queries}:{number}: {folder} has no subfolder {name!r}")
        by_table[name].append(where)
    yield from by_table.items()


def parquet_files(folder: Path) -> list[Path]:
    """Of a table, in order; hidden ones and those of Spark's protocol (`_`) are none."""
    return sorted(
        path for path in folder.rglob("*")
        if path.suffix.lower() == ".parquet" and path.is_file() and path.name[0] not in "._"
    )  # fmt: skip


def show(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Print a line a table; the sums."""
    shown = RichTable(title="tuned / default")
    for header in ("table", "bytes", "read", "to grid", "sampled", "trial", "slowest", "layout"):
        shown.add_column(header, justify="left" if header in ("table", "layout") else "right")
    fine = {name: result for name, result in results.items() if "error" not in result}
    for name, result in results.items():
        if "error" in result:
            shown.add_row(name, "error", *[""] * 5, result["error"])
            continue
        shown.add_row(
            name, f"{result['bytes']['ratio']:.2f}", f"{result['read_cpu_ms']['ratio']:.2f}",
            "" if result["score_to_grid"] is None else f"{result['score_to_grid']:.2f}",
            f"{result['sampled_share']:.1%}", f"{result['trial_cpu_ms'] / 1000:.1f} s",
            f"{result['slowest_query']['ratio']:.2f}", result["layout"],
        )  # fmt: skip
    Console(width=160).print(shown)
    for name, result in fine.items():
        for title, ratios in result.get("untried", {}).items():
            print(f"{name:10} {title:28} bytes {ratios['bytes']:.3f} read {ratios['read']:.3f}")
    sums: dict[str, Any] = {}
    for what in ("bytes", "read_cpu_ms"):
        ratios = [result[what]["ratio"] for result in fine.values() if result[what]["ratio"] > 0]
        sums[what] = {
            "of_all": round(
                sum(result[what]["tuned"] for result in fine.values())
                / max(1e-9, sum(result[what]["default"] for result in fine.values())), 3
            ),
            "mean": round(math.exp(sum(map(math.log, ratios)) / max(1, len(ratios))), 3),
            "worst": max(ratios, default=None),
        }  # fmt: skip
    met = {
        "bytes": sums["bytes"]["mean"] <= TARGET_BYTES,
        "read_cpu_ms": sums["read_cpu_ms"]["mean"] <= TARGET_READ,
        "never worse": all(
            result["bytes"]["ratio"] <= 1 and result["read_cpu_ms"]["ratio"] <= 1
            for result in fine.values()
        ),
        "near the grid": all(
            (result["score_to_grid"] or 0) <= NEAR_GRID for result in fine.values()
        ),
        "sampled": all(result["sampled_share"] <= MOST_SAMPLED for result in fine.values()),
    }
    sums["met"] = met
    sums["sampled_share"] = max((result["sampled_share"] for result in fine.values()), default=None)
    sums["score_to_grid"] = max(
        (result["score_to_grid"] or 0 for result in fine.values()), default=None
    )
    Console(width=160).print(sums)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="a subfolder of Parquet files for each table")
    parser.add_argument("--queries", type=Path, help="lines of `table: SQL condition`")
    parser.add_argument("--json", type=Path, help="where results go")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="these tables alone")
    parser.add_argument(
        "--untried", action="store_true", help="what is no candidate, too (benchmarks/untried.py)"
    )
    parser.add_argument("--no-grid", action="store_true", help="leave the grid out")
    args = parser.parse_args()
    out = args.json or (None if args.tables else ROOT / "benchmarks" / "results" / "tune.json")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="tune-"))
    try:
        source = args.tables or folder / "made"
        tables = (
            tables_of_user(args.tables, args.queries)
            if args.tables
            else generate(source, args.seed, args.rows, args.files)
        )
        for number, (name, queries) in enumerate(tables):
            if args.only and name not in args.only:
                continue
            lake = load_catalog(str(folder / f"lake{number}"))
            parts = parquet_files(source / name)
            try:
                if not parts:
                    raise InvalidInputError(f"{source / name} has no Parquet files")
                results[name] = tuned(lake, f"t{number}", parts, queries, args)
            except (LakehouseError, pa.ArrowException) as error:
                results[name] = {"error": f"{type(error).__name__}: {error}"}
            shutil.rmtree(folder / f"lake{number}", ignore_errors=True)
            _write(out, {"tables": results, "rows": args.rows, "seed": args.seed})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {"tables": results, "sums": show(results), "rows": args.rows, "seed": args.seed}
    _write(out, result)


def _write(out: Path | None, result: Mapping[str, Any]) -> None:
    """Replace OUT: a run that is stopped leaves the tables that it measured."""
    if out is not None:
        beside = out.with_name(f"{out.name}.part")
        beside.write_text(json.dumps(result, indent=2) + "\n")
        beside.replace(out)


if __name__ == "__main__":
    main()
