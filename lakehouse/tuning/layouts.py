"""Layouts of a table: which are tried, what they cost, and which of them is proposed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse.spec.table_properties import BLOOM_PREFIX, ENCODING_PREFIX, TableProperties

CODEC = TableProperties.parquet_compression.name
LEVEL = TableProperties.parquet_compression_level.name
GROUP_ROWS = TableProperties.parquet_row_group_limit.name

_MS = 1e6
_QUERY_MS, _MANIFEST_MS, _FILE_MS = 1.1, 0.5, 0.5
_FOOTER_MS, _GROUP_MS, _BLOOM_MS = (0.05, 0.027), (0.1, 0.07), 0.07
"""Processor time of a query, a manifest, a file, a row group's statistics and of reading a row
group, beside that of its rows: the latter two for themselves and for each column; of asking a Bloom
filter. Measured with 2 to 60 columns, see docs/tuning.md."""

SLOWER = 1.05
_LEAST_GAIN = 0.01
_WRITE_WEIGHT, _SLOWER_WEIGHT = 0.03, 3.0
_EFFORT = {"3": 1.2, "9": 2.5, "15": 8.0}
"""Processor time of writing by the level of zstd, as multiples of that of its default."""
_MOST_FINALISTS = 5
_MOST_SORTED, _MOST_FIRST, _MOST_NEXT = 3, 10, 6
_GROUPS = (131_072, 32_768, 16_384, 8_192, 4_096)
_PROBED = 16
"""Row groups that a table has at least while orders are tried, if it is large enough."""
_LEVELS = ("3", "9", "15")
_MOST_BLOOMS = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of a table are laid out.

    Attributes:
        partition_by, sort_by: terms as in `create_table`.
        properties: those that differ from the table's.
    """

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def bloom_filters(self) -> list[str]:
        """The columns with Bloom filters, in the order in which they were chosen."""
        return [
            name.removeprefix(BLOOM_PREFIX)
            for name, text in self.properties.items()
            if name.startswith(BLOOM_PREFIX) and text == "true"
        ]

    def with_properties(self, properties: Mapping[str, str]) -> Layout:
        """The same with more properties."""
        return replace(self, properties={**self.properties, **properties})

    def text(self) -> str:
        """One line: `month(ts), sorted by user_id, zstd 9`."""
        parts = [", ".join(self.partition_by) or "no partitions"]
        parts.append(f"sorted by {', '.join(self.sort_by)}" if self.sort_by else "not sorted")
        encoded = sum(name.startswith(ENCODING_PREFIX) for name in self.properties)
        if GROUP_ROWS in self.properties:
            parts.append(f"row groups of {int(self.properties[GROUP_ROWS]):,} rows")
        if filtered := self.bloom_filters():
            parts.append(f"Bloom filters of {', '.join(filtered)}")
        if encoded:
            parts.append(f"{encoded} column{'s' if encoded > 1 else ''} encoded without dictionary")
        if LEVEL in self.properties:
            parts.append(f"zstd {self.properties[LEVEL]}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, object]:
        """JSON-able."""
        return {
            "partition_by": list(self.partition_by),
            "sort_by": list(self.sort_by),
            "properties": dict(self.properties),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of the workload.

    Attributes:
        where: its filter, `true` for all rows.
        columns: how many it reads; None: all.
        runs: how often a day it is asked.
    """

    where: str
    columns: int | None = None
    runs: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCost:
    """What one run of a query opens and decodes.

    Attributes:
        files: opened.
        footers: row groups whose statistics are looked at.
        groups: row groups read.
        rows: in these.
        share: of the columns that are read.
        width: columns of the table, those inside of others counted.
        manifests: opened.
        blooms: Bloom filters that are asked.
    """

    files: float
    footers: float
    groups: float
    rows: float
    share: float = 1.0
    width: float = 8.0
    manifests: float = 1.0
    blooms: float = 0.0

    def ms(self, row_ns: float) -> float:
        """Processor time, where decoding a row takes so many nanoseconds."""
        return (
            _QUERY_MS
            + _MANIFEST_MS * self.manifests
            + _FILE_MS * self.files
            + (_FOOTER_MS[0] + _FOOTER_MS[1] * self.width) * self.footers
            + (_GROUP_MS[0] + _GROUP_MS[1] * self.width * self.share) * self.groups
            + _BLOOM_MS * self.blooms
            + self.rows * self.share * row_ns / _MS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A layout, measured on a sample and predicted for the whole table.

    Attributes:
        bytes, files: of the whole table.
        row_ns: processor time of decoding a row.
        write_ns: processor time of writing a row.
        queries: in the order of the workload.
    """

    layout: Layout
    bytes: float
    files: float
    row_ns: float
    write_ns: float
    queries: tuple[QueryCost, ...]

    def times(self) -> list[float]:
        """Milliseconds of processor time of each query."""
        return [query.ms(self.row_ns) for query in self.queries]

    def read_ms(self, workload: Sequence[Query]) -> float:
        """Milliseconds of processor time of a day's queries."""
        return sum(time * query.runs for time, query in zip(self.times(), workload, strict=True))

    def to_dict(self) -> dict[str, object]:
        """JSON-able."""
        return {
            **self.layout.to_dict(),
            "bytes": round(self.bytes),
            "files": round(self.files),
            "query_ms": [round(time, 3) for time in self.times()],
            "write_ns_per_row": round(self.write_ns),
        }


def loss(measured: Measured, today: Measured, workload: Sequence[Query]) -> float:
    """How much worse than today's a layout is: 0 is as good, below is better.

    Bytes and processor time of reading count alike, by their ratios; that of writing a little.
    """
    read = measured.read_ms(workload) / today.read_ms(workload)
    return (
        0.5 * math.log(max(measured.bytes, 1.0) / max(today.bytes, 1.0))
        + 0.5 * math.log(read)
        + _WRITE_WEIGHT * math.log(_EFFORT.get(measured.layout.properties.get(LEVEL, ""), 1.0))
    )


def slowdown(measured: Measured, today: Measured) -> float:
    """By how much queries get more than 5 % slower: logarithms of ratios, summed up."""
    pairs = zip(measured.times(), today.times(), strict=True)
    return sum(max(0.0, math.log(time / (SLOWER * before))) for time, before in pairs)


def slower(measured: Measured, today: Measured) -> list[int]:
    """The queries that get more than 5 % slower, by their numbers."""
    pairs = zip(measured.times(), today.times(), strict=True)
    return [at for at, (time, before) in enumerate(pairs) if time > SLOWER * before]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What may be tried on a table.

    Attributes:
        partitions: specs as terms, today's first.
        filtered: sort terms of columns that queries filter by, the most frequent first.
        others: of other columns, those with the fewest values first.
        equated: names of columns that queries compare with `=` and `in`, the most frequent first.
        group_rows: most rows of a row group today.
        rows: of the table.
        codec: of the table.
    """

    partitions: tuple[tuple[str, ...], ...] = ((),)
    filtered: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    equated: tuple[str, ...] = ()
    group_rows: int = 1_048_576
    rows: int = 1 << 40
    codec: str = "zstd"
    level: str | None = None

    def groups(self) -> list[dict[str, str]]:
        """Sizes of row groups, today's first."""
        most = min(self.group_rows, self.rows)
        return [{}, *({GROUP_ROWS: str(rows)} for rows in _GROUPS if rows < most)]

    def probe(self) -> dict[str, str]:
        """Small row groups let an order show what it skips; their size is chosen after it."""
        sizes = [rows for rows in _GROUPS[1:] if _PROBED * rows <= self.rows]
        size = max(sizes, default=_GROUPS[-1])
        usable = self.filtered and size < min(self.group_rows, self.rows)
        return {GROUP_ROWS: str(size)} if usable else {}

    def blooms(self) -> list[dict[str, str]]:
        """Bloom filters: none but today's, of a column, of the first two and so on."""
        named = [f"{BLOOM_PREFIX}{name}" for name in self.equated[:_MOST_BLOOMS]]
        alone = [(name,) for name in named]
        first = [tuple(named[:count]) for count in range(2, len(named) + 1)]
        return [{}, *(dict.fromkeys(names, "true") for names in (*alone, *first))]

    def levels(self) -> list[dict[str, str]]:
        """Codec and level, today's first."""
        now = int(self.level or 1) if self.codec == "zstd" else 0
        return [{}, *({CODEC: "zstd", LEVEL: level} for level in _LEVELS if int(level) > now)]


Measure = Callable[[Layout], Measured]
Encode = Callable[[Layout], Mapping[str, str]]


def search(
    choices: Choices,
    now: Layout,
    today: Measured,
    workload: Sequence[Query],
    measure: Measure,
    encode: Encode,
) -> list[Measured]:
    """Layouts that were tried, the best last: partitions, order, row groups, encodings, filters.

    Args:
        choices: what may be tried.
        now: the table's layout.
        today: the same, measured as it is.
        workload: queries.
        measure: a layout on the sample.
        encode: the properties of the best encodings of the columns, for an order of rows.
    """
    tried: list[Measured] = []

    def best(layouts: Iterator[Layout], least: float = _LEAST_GAIN) -> Measured:
        """The best of some layouts; a later one has to gain something."""
        chosen: Measured | None = None
        for layout in layouts:
            measured = next((trial for trial in tried if trial.layout == layout), None)
            if measured is None:
                measured = measure(layout)
                tried.append(measured)
            if chosen is None or worth(measured) < worth(chosen) - least:
                chosen = measured
        if chosen is None:
            raise AssertionError("there is always today's layout")
        return chosen

    def worth(measured: Measured) -> float:
        return loss(measured, today, workload) + _SLOWER_WEIGHT * slowdown(measured, today)

    start = now.with_properties(choices.probe())
    chosen = best(replace(start, partition_by=terms) for terms in choices.partitions)
    columns = [*choices.filtered, *choices.others]
    unsorted = replace(chosen.layout, sort_by=())
    for place in range(_MOST_SORTED):
        before = chosen
        sorted_by = unsorted.sort_by if place == 0 else chosen.layout.sort_by
        left = [column for column in columns if column not in sorted_by]
        most = _MOST_FIRST if place == 0 else _MOST_NEXT
        orders = ((*sorted_by, column) for column in left[:most])
        sorted_layout = best(
            layout
            for layout in (
                chosen.layout,
                *(replace(chosen.layout, sort_by=terms) for terms in orders),
            )
        )
        if sorted_layout.layout == before.layout:
            break
        chosen = sorted_layout
    sized = [
        replace(
            chosen.layout,
            properties={
                **{
                    name: text
                    for name, text in chosen.layout.properties.items()
                    if name != GROUP_ROWS
                },
                **size,
            },
        )
        for size in choices.groups()
    ]
    chosen = best(iter(sized))
    chosen = best(
        iter((chosen.layout, chosen.layout.with_properties(encode(chosen.layout)))), least=0.0
    )
    chosen = best(chosen.layout.with_properties(blooms) for blooms in choices.blooms())
    return [*tried, best(chosen.layout.with_properties(level) for level in choices.levels())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What storage and processors cost, to weigh a change against what it brings (docs/cost.md).

    Attributes:
        days: the horizon within which a change has to pay.
        gb_month, cpu_hour: dollars.
        kept_days: how long old files stay beside the new ones.
    """

    days: float = 30.0
    gb_month: float = 0.023
    cpu_hour: float = 0.04
    kept_days: float = 5.0

    def storing(self, size: float, days: float) -> float:
        """Dollars for so many bytes over so many days."""
        return size / 1e9 * self.gb_month * days / 30

    def working(self, ms: float) -> float:
        """Dollars for milliseconds of a processor."""
        return ms / 3.6e6 * self.cpu_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a layout is worth adopting.

    Attributes:
        adopt: whether it is.
        why: one line.
        benefit, cost: dollars within the horizon.
    """

    adopt: bool
    why: str
    benefit: float
    cost: float


def judge(
    proposed: Measured,
    today: Measured,
    workload: Sequence[Query],
    *,
    live_bytes: int,
    rows: int,
    prices: Prices,
) -> Verdict:
    """Weigh a layout, measured on rows that did not choose it, against today's."""
    saved_ms = (today.read_ms(workload) - proposed.read_ms(workload)) * prices.days
    benefit = prices.storing(today.bytes - proposed.bytes, prices.days) + prices.working(saved_ms)
    rewriting = rows * (proposed.write_ns + today.row_ns) / _MS
    cost = prices.working(rewriting) + prices.storing(live_bytes, prices.kept_days)
    worse = slower(proposed, today)
    gain = loss(proposed, today, workload)
    if worse:
        why = f"{workload[worse[0]].where} would get more than 5 % slower"
    elif proposed.bytes > SLOWER * today.bytes:
        why = f"it would take {proposed.bytes / max(today.bytes, 1):.2f} x the bytes"
    elif gain > -_LEAST_GAIN:
        why = "rows that did not choose it gain nothing"
    elif benefit <= cost:
        why = (
            f"within {prices.days:g} days it saves ${benefit:.2g}, and rewriting costs ${cost:.2g}"
        )
    else:
        why = f"saves ${benefit:.2g} within {prices.days:g} days, rewriting costs ${cost:.2g}"
        return Verdict(adopt=True, why=why, benefit=benefit, cost=cost)
    return Verdict(adopt=False, why=why, benefit=benefit, cost=cost)


def confirmed(
    proposed: Measured, today: Measured, workload: Sequence[Query], verdict: Verdict
) -> Verdict:
    """A verdict on a sample, after whole files were measured: on these nothing may get worse."""
    worse = slower(proposed, today)
    ratio = proposed.bytes / max(today.bytes, 1)
    if worse:
        why = f"on whole files {workload[worse[0]].where} would get more than 5 % slower"
    elif ratio > 1:
        why = f"whole files would take {ratio:.2f} x the bytes"
    elif loss(proposed, today, workload) > -_LEAST_GAIN:
        why = "whole files gain nothing"
    else:
        return verdict
    return replace(verdict, adopt=False, why=why)


def finalists(
    tried: Sequence[Measured], today: Measured, workload: Sequence[Query]
) -> Iterator[Layout]:
    """The best of those that were tried and make no query slower, then the codec alone."""
    fit = [measured for measured in tried if not slower(measured, today)]
    ranked = sorted(fit, key=lambda measured: loss(measured, today, workload))[:_MOST_FINALISTS]
    yield from (measured.layout for measured in ranked)
    last = tried[-1].layout
    codec = {name: text for name, text in last.properties.items() if name in (CODEC, LEVEL)}
    yield replace(today.layout, properties=codec)
