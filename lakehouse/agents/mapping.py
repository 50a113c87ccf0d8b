"""The map of a lakehouse: its tables at a snapshot, and their statements with their states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse.agents.catalog_map import CatalogMap, MappedTable, Stated
from lakehouse.agents.ranking import Learn
from lakehouse.agents.words import clean
from lakehouse.curation.standard_fields import COMMENT
from lakehouse.curation.survey import Survey
from lakehouse.semantics.statements import Draft
from lakehouse.semantics.states import Standing
from lakehouse.table import Table

SAMPLES = 5
_SAMPLED_ROWS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What a map shows.

    Attributes:
        rows: row counts.
        docs: comments of columns and tables, where no statement is shown that says the same.
        samples: a few values of each column, read from the first rows of each table.
        statements: whether to show them.
        states: whether to show their states; else each statement is shown as if it were true.
        learn: makes the embedding that search uses beside words, such as
            `ranking.LatentEmbedding.of`; None: words alone.
    """

    rows: bool = True
    docs: bool = True
    samples: bool = False
    statements: bool = True
    states: bool = True
    learn: Learn | None = None


def catalog_map(
    seen: Survey,
    options: MapOptions | None = None,
    earlier: CatalogMap | None = None,
) -> CatalogMap:
    """The map of a survey, ready to be searched.

    Args:
        seen: the survey.
        options: what to show.
        earlier: a map with the same options; of what has not changed since its parts are taken.
    """
    wanted = options or MapOptions()
    stated: list[Stated] = []
    if wanted.statements:
        standings = seen.standings() if wanted.states else {}
        before = {} if earlier is None else earlier.by_key
        stated = [
            _stated(
                seen.draft(statement),
                standings.get(statement.statement_id),
                before.get(statement.statement_id),
            )
            for statement in seen.statements
        ]
    about = {(statement.draft.table, statement.draft.column) for statement in stated}
    tables = [_mapped(table, wanted, about) for table in seen.tables.values()]
    if earlier is not None:
        tables = [
            old if (old := earlier.tables.get(table.name)) == table else table for table in tables
        ]
    made = CatalogMap(
        name=seen.lake.name,
        tables={table.name: table for table in sorted(tables, key=lambda table: table.name)},
        statements=tuple(stated),
        learn=wanted.learn,
    )
    made.prepare(earlier)
    return made


def _stated(draft: Draft, standing: Standing | None, before: Stated | None) -> Stated:
    """The earlier one where it says the same: its line and its words are known."""
    if before is not None and before.draft is draft and before.standing == standing:
        return before
    return Stated(draft, standing)


def sample_values(table: Table) -> dict[str, list[str]]:
    """A few different values of each column as text, from the first rows."""
    if table.current_snapshot() is None:
        return {}
    reader = table.scan().to_batches()
    first = next((batch for batch in reader if batch.num_rows), None)
    if first is None:
        return {}
    rows = pa.Table.from_batches([first.slice(0, _SAMPLED_ROWS)])
    return {name: _few(rows[name].to_pylist()) for name in rows.column_names}


def _few(values: Iterable[object]) -> list[str]:
    """The first different values; rare texts tell more than one text again."""
    samples: dict[str, None] = {}
    for value in values:
        if value is not None:
            samples.setdefault(clean(value, 40))
        if len(samples) == SAMPLES:
            break
    return list(samples)


def _mapped(
    table: Table, wanted: MapOptions, about: Collection[tuple[str, str | None]]
) -> MappedTable:
    snapshot = table.current_snapshot()
    total: Sequence[str] = [] if snapshot is None else [snapshot.summary.get("total-records", "")]
    schema = table.schema()
    docs = {field.name: field.doc for field in schema.fields if wanted.docs and field.doc}
    commented = wanted.docs and (table.name, None) not in about
    rows = int(total[0]) if wanted.rows and total and total[0].isdigit() else None
    return MappedTable(
        name=table.name,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        rows=rows,
        schema=schema,
        comment=table.properties.get(COMMENT, "") if commented else "",
        docs={name: doc for name, doc in docs.items() if (table.name, name) not in about},
        samples=sample_values(table) if wanted.samples else {},
    )
