"""The map of a catalog: everything that answers are made of, at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.schema import Schema

from lakehouse.agents.lines import statement_line
from lakehouse.agents.ranking import Document, Learn, Ranking
from lakehouse.agents.words import clean, quoted, token_estimate, words
from lakehouse.semantics.binding import split_column
from lakehouse.semantics.claims import SLOTS, Kind, Shape
from lakehouse.semantics.sql_names import sql_mentions
from lakehouse.semantics.statements import Draft
from lakehouse.semantics.states import Standing, State


@dataclass(frozen=True)
class Stated:
    """A statement as it is served.

    Attributes:
        draft: under present names.
        standing: its state; None where states are not to be shown.
    """

    draft: Draft
    standing: Standing | None

    @property
    def key(self) -> str:
        """Its id."""
        return self.draft.statement_id

    @property
    def contradicted(self) -> bool:
        """Whether readers should not rely on it."""
        return self.standing is not None and self.standing.state is State.CONTRADICTED

    @cached_property
    def line(self) -> tuple[str, int]:
        """It as a line, and its tokens."""
        text = statement_line(self.draft, self.standing)
        return text, token_estimate(text)

    @cached_property
    def phrases(self) -> list[tuple[str, ...]]:
        """Names of what it is about, as stems: labels, synonyms, metrics, filters."""
        return statement_phrases(self.draft)

    @cached_property
    def document(self) -> Document:
        """The words that lead to it."""
        return statement_document(self.draft)


@dataclass(frozen=True, kw_only=True)
class MappedTable:
    """A table as agents see it.

    Attributes:
        name: dotted.
        snapshot_id: what the answer is about; None for a table without data.
        rows: None when it is not to be shown, or unknown.
        schema: of the snapshot.
        comment: what the table's own properties say of it; empty when statements say it.
        docs: by column, the comment in the schema; not where statements say it.
        samples: by column, a few values as text.
    """

    name: str
    snapshot_id: int | None
    rows: int | None
    schema: Schema
    comment: str = ""
    docs: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """Names of its top-level columns."""
        return [field.name for field in self.schema.fields]

    @cached_property
    def paths(self) -> frozenset[str]:
        """Its columns, nested ones by their dotted path."""
        return frozenset(self.schema.column_names)

    @cached_property
    def head(self) -> tuple[str, int]:
        """The line that a block about it begins with, and its tokens."""
        snapshot = f" snapshot={self.snapshot_id}" if self.snapshot_id else ""
        rows = f" rows={self.rows}" if self.rows is not None else ""
        comment = f" {quoted(self.comment)}" if self.comment else ""
        text = f"# {self.name}{snapshot}{rows}{comment}"
        return text, token_estimate(text)

    @cached_property
    def cells(self) -> dict[str, tuple[str, int]]:
        """Each column as text, and its tokens: `st int`, with its comment and samples."""
        texts = {column: self._cell(column) for column in self.columns}
        return {column: (text, token_estimate(text)) for column, text in texts.items()}

    def _cell(self, column: str) -> str:
        field_ = self.schema.find_field(column)
        text = f"{column} {field_.field_type}"
        if doc := self.docs.get(column):
            text += f" {quoted(doc, 600)}"
        if values := self.samples.get(column):
            text += f" e.g. {', '.join(quoted(value, 40) for value in values)}"
        return text


@dataclass(frozen=True)
class CatalogMap:
    """Tables and statements of a catalog, with their search index.

    Attributes:
        name: of the catalog.
        tables: by dotted name.
        statements: about these tables; those about dropped tables have no block to stand in.
        learn: makes the embedding that search uses beside words; None: words alone.
    """

    name: str
    tables: Mapping[str, MappedTable]
    statements: Sequence[Stated] = ()
    learn: Learn | None = None

    @cached_property
    def by_table(self) -> dict[str, list[Stated]]:
        """Statements by the table that they are about."""
        by_table: dict[str, list[Stated]] = {name: [] for name in self.tables}
        for statement in self.statements:
            if statement.draft.table in by_table:
                by_table[statement.draft.table].append(statement)
        return by_table

    @cached_property
    def by_key(self) -> dict[str, Stated]:
        """Statements by id."""
        return {statement.key: statement for statement in self.statements}

    @cached_property
    def places(self) -> dict[str, int]:
        """The order of statements, by id."""
        return {statement.key: place for place, statement in enumerate(self.statements)}

    @cached_property
    def notices(self) -> dict[str, list[Stated]]:
        """Statements shown wherever a table is named: deprecations, and what to take instead."""
        return {
            name: [
                statement
                for statement in statements
                if statement.draft.kind is Kind.DEPRECATION or statement.draft.claim.get("instead")
            ]
            for name, statements in self.by_table.items()
        }

    @cached_property
    def table_documents(self) -> list[Document]:
        """The words that lead to tables."""
        return [self._table_document(table) for table in self.tables.values()]

    @cached_property
    def table_ranking(self) -> Ranking:
        """Tables by the words of all their statements."""
        return Ranking(self.table_documents, self.learn)

    @cached_property
    def statement_documents(self) -> list[Document]:
        """The words that lead to statements."""
        return [statement.document for statement in self.statements]

    @cached_property
    def statement_ranking(self) -> Ranking:
        """Statements by what they say."""
        return Ranking(self.statement_documents, self.learn)

    @cached_property
    def by_phrase(self) -> dict[tuple[str, ...], list[Stated]]:
        """Statements by what names them, see `Stated.phrases`."""
        by_phrase: dict[tuple[str, ...], list[Stated]] = {}
        for statement in self.statements:
            for phrase in statement.phrases:
                by_phrase.setdefault(phrase, []).append(statement)
        return by_phrase

    @cached_property
    def absences(self) -> list[Stated]:
        """Statements of data that is in no table."""
        return [
            statement
            for statement in self.statements
            if statement.draft.kind is Kind.ABSENCE and statement.draft.table in self.tables
        ]

    @cached_property
    def mentions(self) -> dict[str, frozenset[tuple[str, str | None]]]:
        """What each statement's claim mentions beside its own subject: (table, column) pairs."""
        return {statement.key: self._mentioned(statement) for statement in self.statements}

    def prepare(self, earlier: CatalogMap | None = None) -> None:
        """Make all that answers need, so that none of them waits for it.

        Args:
            earlier: a map of the same catalog; what has not changed since is taken from it.
        """
        if earlier is not None:
            self._take(earlier)
        for table in self.tables.values():
            _ = table.head, table.cells
        for statement in self.statements:
            _ = statement.line, statement.phrases
        _ = self.by_key, self.places, self.by_phrase, self.absences, self.notices
        _ = self.mentions, self.table_ranking, self.statement_ranking

    def _take(self, earlier: CatalogMap) -> None:
        """What comes out the same for both, by the name that it is kept under."""
        if self.statement_documents == earlier.statement_documents:
            self.__dict__["statement_ranking"] = earlier.statement_ranking
        if self.table_documents == earlier.table_documents:
            self.__dict__["table_ranking"] = earlier.table_ranking
        paths = {name: table.paths for name, table in self.tables.items()}
        if paths == {name: table.paths for name, table in earlier.tables.items()}:
            self.__dict__["mentions"] = {
                statement.key: earlier.mentions[statement.key]
                if (old := earlier.by_key.get(statement.key)) is not None
                and old.draft is statement.draft
                else self._mentioned(statement)
                for statement in self.statements
            }

    def _table_document(self, table: MappedTable) -> Document:
        fields = [(table.name, 3.0), (table.comment, 2.0)]
        fields += [(field.name, 1.0) for field in table.schema.fields]
        fields += [(doc, 0.6) for doc in table.docs.values()]
        fields += [(" ".join(values), 0.2) for values in table.samples.values()]
        for stated in self.by_table[table.name]:
            if not stated.contradicted:
                fields += _fields(stated.draft)
        return Document(table.name, tuple(fields))

    def _mentioned(self, stated: Stated) -> frozenset[tuple[str, str | None]]:
        return frozenset(self._mentions(stated.draft))

    def _mentions(self, draft: Draft) -> Iterable[tuple[str, str | None]]:
        for name, value in draft.claim.items():
            shape = SLOTS[draft.kind][name].shape
            columns = [value] if shape is Shape.COLUMN else []
            columns = list(value) if shape is Shape.COLUMNS else columns
            columns = [value["column"]] if shape is Shape.SIGN else columns
            yield from (split_column(column, draft.table, self.tables) for column in columns)
            if shape in (Shape.TABLE, Shape.TABLES):
                yield from ((name, None) for name in ([value] if shape is Shape.TABLE else value))
            if shape in (Shape.PREDICATE, Shape.EXPRESSION):
                yield from self._in_sql(value, draft)
        for name in _DOTTED.findall(draft.text):
            if name in self.tables and name != draft.table:
                yield name, None

    def _in_sql(self, sql: str, draft: Draft) -> Iterable[tuple[str, str | None]]:
        try:
            yield from sql_mentions(sql, draft.table, self._columns)
        except ValueError:  # a column of it is gone, and the statement with it
            return

    def _columns(self, table: str) -> frozenset[str] | None:
        mapped = self.tables.get(table)
        return None if mapped is None else mapped.paths


_DOTTED = re.compile(r"\b[a-z_]\w*\.[a-z_]\w*\b")

_TABLE_WEIGHTS = {
    Kind.SYNONYMS: 3.0,
    Kind.DESCRIPTION: 2.0,
    Kind.METRIC: 2.0,
    Kind.GRAIN: 1.0,
    Kind.ABSENCE: 1.0,
    Kind.CODES: 0.6,
}


def _fields(draft: Draft) -> list[tuple[str, float]]:
    """What a statement adds to the document of its table."""
    weight = _TABLE_WEIGHTS.get(draft.kind, 0.4)
    if draft.column is not None and draft.kind in (Kind.SYNONYMS, Kind.DESCRIPTION):
        weight = 1.0
    return [(text, weight) for text in _texts(draft)]


def statement_phrases(draft: Draft) -> list[tuple[str, ...]]:
    """Each name as stems; the codes themselves are none."""
    claim = draft.claim
    texts = [str(claim[slot]) for slot in ("label", "name", "entity", "role") if claim.get(slot)]
    for slot in ("words", "topics"):
        texts += claim.get(slot, [])
    if draft.kind is Kind.CODES:
        for labels in claim["values"].values():
            texts += labels if isinstance(labels, list) else [labels]
    phrases = dict.fromkeys(tuple(words(text)) for text in texts)
    return [phrase for phrase in phrases if phrase]


def statement_document(draft: Draft) -> Document:
    """The words that lead to a statement: its own, and the names of what it is about."""
    about = f"{draft.table} {draft.column or ''}"
    return Document(draft.statement_id, ((about, 1.0), *((text, 1.0) for text in _texts(draft))))


def _texts(draft: Draft) -> list[str]:
    """Texts of a statement: its sentence, labels, words and topics."""
    texts = [draft.text]
    for value in draft.claim.values():
        if isinstance(value, str):
            texts.append(clean(value))
        elif isinstance(value, list):
            texts += [item for item in value if isinstance(item, str)]
        elif isinstance(value, Mapping):
            for item in value.values():
                texts += item if isinstance(item, list) else [str(item)]
    return [name for name in texts if name]
