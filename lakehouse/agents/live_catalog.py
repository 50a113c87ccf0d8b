"""A lakehouse as agents see it: views, made again before they are older than a few seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import TypeGuard

import pyarrow as pa

from lakehouse.agents.catalog_map import CatalogMap, MappedTable, Stated
from lakehouse.agents.ranking import Learn
from lakehouse.agents.words import clean
from lakehouse.curation.standard_fields import COMMENT
from lakehouse.curation.survey import Survey, survey
from lakehouse.errors import NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.semantics.statements import Draft
from lakehouse.semantics.states import Standing
from lakehouse.table import Table

log = logging.getLogger(__name__)

FRESH_MS = 2_000
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


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A lakehouse at one moment; an answer is made of one of these.

    Attributes:
        map: tables and statements, ready to be searched.
        tables: the table versions that the map is of, by name.
        seen: the look that both are of.
    """

    map: CatalogMap
    tables: Mapping[str, Table]
    seen: Survey

    def table(self, name: str, snapshot_id: int | None = None) -> MappedTable:
        """A table of the map; with a snapshot its columns and rows as they were then.

        Raises:
            NoSuchTableError, NoSuchSnapshotError: there is none of that name or id.
        """
        tables = self.map.tables
        if name not in tables:
            listed = ", ".join(list(tables)[:10])
            raise NoSuchTableError(f"There is no table {name}; there are {listed}", table=name)
        mapped, table = tables[name], self.tables[name]
        if snapshot_id is None or snapshot_id == mapped.snapshot_id:
            return mapped
        snapshot = table.metadata.snapshot(snapshot_id)
        total = snapshot.summary.get("total-records", "")
        return MappedTable(
            name=name,
            snapshot_id=snapshot_id,
            rows=int(total) if total.isdigit() else None,
            schema=table.metadata.schema_for(snapshot),
        )


class LiveCatalog:
    """Serves views of a lakehouse that others change meanwhile.

    A view that is half as old as it may be is made again beside the answers; they wait only for one
    that is too old, such as the first, or the first after a pause longer than `keep_s`.

    Args:
        lake: the lakehouse.
        options: what its map shows.
        fresh_ms: how old a view may be; an answer is at most this much behind the catalog.
        keep_s: for how many seconds after the last answer views are still made, so that the next
            one need not wait.
    """

    def __init__(
        self,
        lake: Lakehouse,
        options: MapOptions | None = None,
        fresh_ms: int = FRESH_MS,
        keep_s: float = 0,
    ) -> None:
        self.lake = lake
        self._options = options or MapOptions()
        self._fresh_ms = fresh_ms
        self._keep_s = keep_s
        self._asked_s = time.monotonic()
        self._looking = Lock()
        self._beside = Lock()
        self._view: CatalogView | None = None

    @property
    def waits(self) -> bool:
        """Whether the next view waits for the catalog to be read."""
        return not self._is_fresh(self._view)

    def view(self) -> CatalogView:
        """The lakehouse as it is, or was at most `fresh_ms` ago."""
        self._asked_s = time.monotonic()
        view = self._view
        if not self._is_fresh(view):
            with self._looking:
                view = self._view  # somebody else may have looked while this one waited
                if not self._is_fresh(view):
                    view = self._look()
        elif self._age_ms(view) > self._fresh_ms / 2:
            self.look_beside()
        return view

    def view_at(self, view: CatalogView, name: str, snapshot_id: int) -> CatalogView:
        """A view with one table as of a snapshot, and what was said then; states are those of now.

        Raises:
            NoSuchTableError, NoSuchSnapshotError: there is none of that name or id.
        """
        mapped = view.table(name, snapshot_id)
        then = view.tables[name].metadata.snapshot(snapshot_id).timestamp_ms
        seen = survey(self.lake, as_of_ms=then, earlier=view.seen)
        catalog = catalog_map(seen, self._options)
        made = replace(catalog, tables={**catalog.tables, name: mapped})
        return CatalogView(made, view.tables, seen)

    def look_beside(self) -> None:
        """Make the view again in a thread, unless one does already; repeat while it is read."""
        if self._beside.acquire(blocking=False):
            Thread(target=self._look_and_log, name="catalog-look", daemon=True).start()

    def _age_ms(self, view: CatalogView) -> float:
        return self.lake.environment.now_ms() - view.seen.now_ms

    def _is_fresh(self, view: CatalogView | None) -> TypeGuard[CatalogView]:
        """A view of the future is none: the clock was set back."""
        return view is not None and 0 <= self._age_ms(view) <= self._fresh_ms

    def _look_and_log(self) -> None:
        try:
            while True:
                with self._looking:
                    self._look()
                if time.monotonic() - self._asked_s >= self._keep_s:
                    break
                time.sleep(self._fresh_ms / 2_000)
        except Exception:  # noqa: BLE001 - the next answer that waits for the catalog meets it
            log.warning("The catalog could not be read again", exc_info=True)
        finally:
            self._beside.release()

    def _look(self) -> CatalogView:
        before = self._view
        seen = survey(self.lake, earlier=None if before is None else before.seen)
        catalog = catalog_map(seen, self._options, earlier=None if before is None else before.map)
        tables = {table.name: table for table in seen.tables.values()}
        self._view = CatalogView(catalog, tables, seen)
        return self._view
