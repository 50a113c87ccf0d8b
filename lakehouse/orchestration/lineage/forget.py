"""Forget a person: their rows leave tables, and the bytes of their rows leave the files.

A plan names rows, snapshots, landing files and what stands in the way. Carried out, it deletes the
rows, writes files and manifests again without them, expires the snapshots that hold them, and then
searches every file of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, In, IsNull, Or
from pyiceberg.types import StringType
from rich.console import Group, RenderableType
from rich.text import Text
from sqlglot import Tokenizer, TokenType, exp

from lakehouse.catalog.confinement import OwnFolders
from lakehouse.curation.statement_store import NAMESPACE
from lakehouse.delta_log.delta_log import DeltaLog, cut_log
from lakehouse.errors import (
    InvalidInputError,
    MaintenanceRefusedError,
    NotFoundError,
    UnsupportedFeatureError,
)
from lakehouse.expressions.bound_filter import Leaf, Op, disjunction
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.expressions.sql.sql_grammar import parsed
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE
from lakehouse.ingestion.source_tables import REST_DOC
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.backup import backed_up_files
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions
from lakehouse.maintenance.orphan_removal import OrphanOptions
from lakehouse.maintenance.reachability.location_keys import LocationKeys
from lakehouse.maintenance.reachability.reachable_files import StorageWalker, reachable_keys
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, plan_expiry
from lakehouse.maintenance.shown_plan import Report, listing
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.lineage.traced_query import same_columns
from lakehouse.orchestration.lineage.undo_by_rows import Inverse
from lakehouse.orchestration.lineage.value_traces import LONG_TEXT, Key, LandedLines, Traces
from lakehouse.orchestration.lineage.why import Model, tables_at
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.location import canonical, is_within
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.table import Table

FORGOTTEN = f"{NAMESPACE}.forgotten"
"""Table with a row for each time that somebody was forgotten, without the value."""
_LOG = "write.metadata.previous-versions-max"
_RECORD = ("record", "detail")
QUARANTINE = "_quarantine"
_TEXTS = 20
"""Texts of forgotten lines that are looked for in files, beside the rows themselves."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d")
_DIGITS = 9
"""So many digits are in no id or size by chance."""
_SCHEMA = pa.schema(
    [
        pa.field("forgotten_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("tables", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("files_searched", pa.int64(), nullable=False),
        pa.field("files_left", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TableOfPerson:
    """What forgetting does to a table.

    Attributes:
        name: dotted.
        rows: that go.
        snapshots: that expire.
        blocked_by: branches and tags whose snapshots hold the rows.
        landing: landing file -> lines that are known to hold them.
        key: what is looked for.
        where: passes the rows that go.
        lines: rows of these are looked for, too; then `key` has texts of them, of which those are
            looked for that no other row has.
        gone: of what is derived from lines: the rows that go, if `where` passes others, too.
    """

    name: str
    rows: int
    snapshots: int
    blocked_by: tuple[str, ...]
    landing: Mapping[str, tuple[int, ...]]
    key: Key = field(repr=False)
    where: Where = field(repr=False)
    lines: LandedLines | None = None
    gone: Inverse | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Forgetting(Report):
    """A person who is forgotten.

    Attributes:
        column: that tells who, or where the rows landed.
        whose: rows that go, in words without a value of theirs.
        tables: what happens to each.
        follow: derived tables whose rows are of others, too: they follow when they are computed
            again.
        derived_known: whether there were definitions that tell which tables are derived.
        applied: whether it was done.
        searched: files that were searched for the value, after it was done.
        left: file -> what of it holds the value still; of files that a snapshot reaches.
        unreachable: the same, of files that nothing reaches.
        backups: folder that was looked at -> numbers of its backups that hold rows of the tables.
    """

    column: str
    whose: str
    tables: tuple[TableOfPerson, ...]
    follow: tuple[str, ...] = ()
    derived_known: bool = True
    applied: bool = False
    searched: int = 0
    left: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unreachable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def landing(self) -> dict[str, int]:
        """Landing file -> its lines that hold the person, as the tables knew them."""
        lines: dict[str, set[int]] = {}
        for table in self.tables:
            for file, numbers in table.landing.items():
                lines.setdefault(file, set()).update(numbers)
        return {file: len(numbers) for file, numbers in sorted(lines.items())}

    def title(self) -> str:
        """Whose rows."""
        done = "are forgotten" if self.applied else "would be forgotten (--apply does it)"
        return f"Rows of {self.whose} {done}"

    def facts(self) -> Iterator[tuple[str, object]]:
        """What was done, what was proved, and what is left to people."""
        yield "rows", sum(table.rows for table in self.tables)
        if self.follow:
            yield "to compute again", ", ".join(self.follow)
        if not self.derived_known:
            yield "derived tables", "none is followed: this folder has no definitions.py"
        if self.applied:
            yield "files searched", self.searched
            yield "of them with the value", len(self.left) + len(self.unreachable)
        if self.landing:
            yield "landing files with the lines", len(self.landing)
        for folder, numbers in self.backups.items():
            yield "backups with the rows", f"{', '.join(map(str, numbers)) or 'none'} of {folder}"
        backups = "" if self.backups else "backups (--backup FOLDER), "
        yield (
            "not looked at",
            f"{backups}copies of the tables elsewhere, reports of scans, and the logs of runs",
        )

    def detail(self) -> RenderableType:
        """The tables, files that hold the value still, and landing files."""
        parts: list[RenderableType] = [
            listing(
                ("table", "#rows", "#snapshots to expire", "blocked by"),
                [(o.name, o.rows, o.snapshots, ", ".join(o.blocked_by)) for o in self.tables],
            )
        ]
        for what, files in (("reached", self.left), ("reached by nothing", self.unreachable)):
            for file, traces in files.items():
                parts.append(Text(f"{file}, {what}: {', '.join(traces)}", style="red"))
        if self.landing:
            parts.append(listing(("landing file", "#lines"), self.landing.items()))
        return Group(*parts)

    def to_dict(self) -> dict[str, object]:
        """All of it, without the value."""
        return {
            "column": self.column,
            "applied": self.applied,
            "tables": [
                {
                    "table": table.name,
                    "rows": table.rows,
                    "snapshots_to_expire": table.snapshots,
                    "blocked_by": list(table.blocked_by),
                }
                for table in self.tables
            ],
            "to_compute_again": list(self.follow),
            "derived_known": self.derived_known,
            "landing": {
                file: sorted({n for table in self.tables for n in table.landing.get(file, ())})
                for file in self.landing
            },
            "files_searched": self.searched,
            "left": {file: list(traces) for file, traces in self.left.items()},
            "unreachable": {file: list(traces) for file, traces in self.unreachable.items()},
            "backups": {folder: list(numbers) for folder, numbers in self.backups.items()},
        }


def forget(
    lake: Lakehouse, where: str, tables: Sequence[str], *, apply: bool = False
) -> Forgetting:
    """As `forgotten`, with the tables that the checkout's definitions derive from these.

    Without tables it is all that have the column. Raises InvalidInputError: none has it.
    """
    tables = tables or _having(lake, where)
    try:
        checkout = checkout_here()
    except NotFoundError:
        return forgotten(lake, None, where, tables, apply=apply)
    derived = {definition.name: definition for definition in checkout.pipeline.derived}
    aliases = {
        column.name: column.aliases
        for source in checkout.pipeline.sources
        if source.table in tables
        for column in source.columns
    }
    return forgotten(lake, derived, where, tables, aliases=aliases, apply=apply)


def _having(lake: Lakehouse, where: str) -> list[str]:
    """All tables with the column of a condition."""
    column = parsed(where).find(exp.Column)
    having = [
        name
        for name in lake.list_tables()
        if column is not None and column.name in lake.load_table(name).schema().column_names
    ]
    if not having:
        raise InvalidInputError(f"{where}: no table has such a column; name it as user_id = 42")
    return having


def forgotten(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable] | None,
    where: str,
    tables: Sequence[str],
    *,
    aliases: Mapping[str, tuple[str, ...]] | None = None,
    apply: bool = False,
) -> Forgetting:
    """Delete rows of one value of a column, and the bytes of these rows.

    Those of the tables, of their quarantines, and of tables derived from them that have the column.

    Args:
        lake: the catalog.
        derived: definitions of tables; None: they are not known.
        where: `column = value`, or `column IN (...)`.
        tables: dotted names.
        aliases: column -> other fields of records that it takes its value from.
        apply: do it; else only plan.

    Raises:
        InvalidInputError: another condition, or a table without the column.
        CorruptMetadataError: another engine wrote to a Delta log of the tables; nothing was done.
        MaintenanceRefusedError: branches or tags hold the rows, or `gc.enabled` is false; nothing
            was done.
        LakehouseError: a file cannot be searched; what was done before stays done.
    """
    if not tables:
        raise InvalidInputError("name the tables that people are in: --table raw.events")
    key = _key(lake.load_table(tables[0]), where)
    key = replace(key, aliases=(aliases or {}).get(key.column, ()))
    names, follow = _names(lake, derived or {}, key.column, tables)
    planned = [
        _planned(lake, name, _of_column(where, key.column, column), replace(key, column=column))
        for name, column in names
    ]
    known = derived is not None
    plan = Forgetting(key.column, f"one {key.column}", tuple(planned), follow, derived_known=known)
    return carried_out(lake, plan, replace(key, field_id=0)) if apply else plan


def carried_out(lake: Lakehouse, plan: Forgetting, key: Key) -> Forgetting:
    """Do what a plan says, search the files, and record it; raises as `forgotten`.

    Args:
        lake: the catalog.
        plan: its tables in the order in which their rows go.
        key: what is looked for in tables that are to be computed again.
    """
    planned = plan.tables
    blocked = [
        f"{entry.name} by {', '.join(entry.blocked_by)}" for entry in planned if entry.blocked_by
    ]
    if blocked:
        raise MaintenanceRefusedError(
            f"branches or tags hold rows of {plan.whose}: {'; '.join(blocked)}. Nothing was "
            "done. Remove them first (lakehouse tag TABLE NAME --delete)"
        )
    before = {entry.name: _reached(lake.load_table(entry.name)) for entry in planned}
    for entry in planned:
        _rewritten(lake, entry)
    searched, texts = 0, set[str]()
    left: dict[str, tuple[str, ...]] = {}
    unreachable: dict[str, tuple[str, ...]] = {}
    for entry in planned:
        table = lake.load_table(entry.name)
        if entry.lines is not None:
            entry = replace(
                entry, key=replace(entry.key, values=_of_nobody_else(table, entry.key.values))
            )
            texts.update(entry.key.values)
        count, reached, others = _searched(table, entry, before[entry.name])
        searched, left, unreachable = searched + count, left | reached, unreachable | others
    for name in filter(lake.table_exists, plan.follow):  # such as a list of persons
        count, reached, others = traces_in(
            lake.load_table(name), replace(key, values=tuple(texts)) if texts else key
        )
        searched, left, unreachable = searched + count, left | reached, unreachable | others
    done = replace(plan, applied=True, searched=searched, left=left, unreachable=unreachable)
    _recorded(lake, done)
    return done


def with_backups(lake: Lakehouse, forgetting: Forgetting, folders: Sequence[str]) -> Forgetting:
    """The same, with the backups that hold the rows: all of their files are searched.

    Of landing lines rows are looked for alone, so those of tables that keep file and line.

    Raises:
        NotFoundError: a folder without a backup. LakehouseError: a file cannot be searched.
    """
    held = {}
    for folder in folders:
        files = backed_up_files(folder, lake.catalog.properties)
        storage, keys = storage_for(folder, lake.catalog.properties), LocationKeys()
        numbers = set[int]()
        for entry in forgetting.tables:
            table = lake.load_table(entry.name)
            own = [canonical(place) for place in OwnFolders(table.catalog, table.metadata).folders]
            key = entry.key if entry.lines is None else replace(entry.key, values=())
            traces = Traces(key, storage, table.metadata, _texts(table), entry.lines)
            named = {
                keys.key(location): kept
                for location, kept in files.items()
                if any(is_within(location, place) for place in own)
            }
            for name, _ in traces.in_all({name: place for name, (place, _) in named.items()}):
                numbers.update(named[name][1])
        held[folder] = tuple(sorted(numbers))
    return replace(forgetting, backups=held)


def _names(
    lake: Lakehouse, derived: Mapping[str, DerivedTable], column: str, tables: Sequence[str]
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Tables with rows of the person and what each calls the column, and derived ones without."""
    pairs, follow = [(name, column) for name in tables], list[str]()
    reached = set(tables)
    while True:
        more = [n for n, o in derived.items() if n not in reached and reached & set(o.inputs)]
        if not more:
            break
        reached |= set(more)
        for name in more:
            if lake.table_exists(name):
                columns = lake.load_table(name).schema().column_names
                called = set(_called(lake, derived[name], pairs)) | {column}
                has = [(name, column_name) for column_name in columns if column_name in called]
                pairs += has
                follow += [] if has else [name]
    beside = [(pair, column) for name, _ in pairs for pair in _beside(lake, name, column)]
    return list(dict.fromkeys((*pairs, *beside))), tuple(follow)


def _called(
    lake: Lakehouse, definition: DerivedTable, known: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Columns of a derived table that are, value by value, these columns of its inputs."""
    tables, _ = tables_at(lake, definition.inputs, {})
    query = definition.query
    if query is None or len(tables) < len(definition.inputs):
        return

    def no_session() -> Any:
        raise UnsupportedFeatureError("no SQL is run here")

    typed = Model(query, tables, definition.name, no_session).query
    same_as = same_columns(typed, typed.named_selects)
    for name, column in known:
        for same in same_as.get(query.views.get(name, ""), ()):
            if same.column == column and not same.days:
                yield same.output


def _of_column(where: str, column: str, name: str) -> str:
    """A condition on a column that is called otherwise."""
    texts = (TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING)
    for token in reversed(Tokenizer().tokenize(where) if name != column else ()):
        if token.token_type not in texts and token.text.lower() == column.lower():
            where = f'{where[: token.start]}"{name}"{where[token.end + 1 :]}'
    return where


def _beside(lake: Lakehouse, name: str, column: str) -> Iterator[str]:
    """A table's quarantine, and the table that remembers its deletes by a key of the column."""
    if lake.table_exists(f"{name}{QUARANTINE}"):
        yield f"{name}{QUARANTINE}"
    deletes = TableProperties(lake.load_table(name).properties).changes_deletes_table
    if (
        deletes
        and lake.table_exists(deletes)
        and column in lake.load_table(deletes).schema().column_names
    ):
        yield deletes


def _key(table: Table, where: str) -> Key:
    """The values that a condition names. Raises InvalidInputError."""
    leaf = bind(where, table.schema())
    if not isinstance(leaf, Leaf) or leaf.op not in (Op.EQ, Op.IN) or len(leaf.path) > 1:
        raise InvalidInputError(
            f"{where}: say one column and its values, as user_id = 42 or user_id IN (42, 43); a "
            "search of files for the values cannot follow another condition"
        )
    values = leaf.value if leaf.op is Op.IN else (leaf.value,)
    return Key(leaf.path[0], leaf.field_id, leaf.type, tuple(values))


def _planned(lake: Lakehouse, name: str, where: str, key: Key) -> TableOfPerson:
    table = lake.load_table(name)
    DeltaLog(table.storage, table.location).head()  # of another engine: it could not be cut
    names = table.schema().column_names
    condition: Where = AlwaysFalse()
    if key.column in names:
        key, condition = replace(_key(table, where), aliases=key.aliases), where
    elif not _texts(table):
        raise InvalidInputError(f"{name} has no column {key.column!r}: leave it out")
    else:
        key = replace(key, field_id=0)
    lines = [name for name in (LANDING_FILE, LANDING_LINE) if name in names]
    landing: dict[str, set[int]] = {}
    rows = table.scan(condition, lines or None).to_arrow()
    count = rows.num_rows
    for row in rows.to_pylist() if len(lines) == 2 else ():
        landing.setdefault(row[LANDING_FILE], set()).add(row[LANDING_LINE])
    mentions = _in_texts(table, key)
    if mentions:
        schema = table.schema()
        places = [bind(condition, schema), bind(_of_lines(mentions), schema)]
        condition = disjunction(places)
        count = table.scan(condition).count()
        for file, numbers in mentions.items():
            landing.setdefault(file, set()).update(
                number for number in numbers if number is not None
            )
    return TableOfPerson(
        name,
        count,
        to_expire(table),
        tuple(_blocking(table, condition)),
        {file: tuple(sorted(numbers)) for file, numbers in landing.items()},
        key,
        condition,
    )


def to_expire(table: Table) -> int:
    """How many snapshots go, of all but the current one."""
    options = ExpiryOptions(older_than_ms=table.environment.now_ms() + 1, retain_last=1)
    return len(plan_expiry(table.catalog, table.identifier, options, list_files=False).reasons)


def _texts(table: Table) -> frozenset[str]:
    """Columns that hold whole records, or what was left of them, as text."""
    fields = table.schema().fields
    rest = {field.name for field in fields if field.doc == REST_DOC}
    names = {field.name for field in fields}
    return frozenset(rest | (set(_RECORD) if {*_RECORD, LANDING_FILE} <= names else set()))


def _in_texts(table: Table, key: Key) -> dict[str, set[int | None]]:
    """Landing lines whose text has the value."""
    lines: dict[str, set[int | None]] = {}
    texts = sorted(_texts(table))
    if texts and table.current_snapshot() is not None:
        for batch in table.scan(select=[LANDING_FILE, LANDING_LINE, *texts]).to_batches():
            parts = [key.may_be_in(batch[name]) for name in texts]
            for row in batch.filter(reduce(pc.or_, parts)).to_pylist():
                if any(key.in_text(row[name]) for name in texts):
                    lines.setdefault(row[LANDING_FILE], set()).add(row[LANDING_LINE])
    return lines


def _of_lines(mentions: Mapping[str, set[int | None]]) -> BooleanExpression:
    parts: list[BooleanExpression] = []
    for file, lines in mentions.items():
        of_file = EqualTo(term=LANDING_FILE, value=file)
        numbers = {line for line in lines if line is not None}
        if numbers:
            parts.append(And(of_file, In(term=LANDING_LINE, literals=numbers)))
        if None in lines:
            parts.append(And(of_file, IsNull(term=LANDING_LINE)))
    return reduce(Or, parts)


def _blocking(table: Table, condition: Any) -> Iterator[str]:
    """Branches and tags beside main whose snapshots have such rows."""
    for name in table.refs():
        if name != "main" and table.scan(condition, ref=name).count():
            yield name


def _rewritten(lake: Lakehouse, entry: TableOfPerson) -> None:
    """Rows, files, manifests and snapshots go."""
    table = lake.load_table(entry.name)
    if table.current_snapshot() is None:
        return
    if entry.gone is None:
        table.delete(entry.where)
    elif entry.gone.gone:
        where = entry.gone.where(table)
        table.overwrite(entry.gone.apply(table, table.scan(where).to_arrow()), where)
    head = table.refresh().current_snapshot()
    if head is not None and head.summary.get("total-delete-files", "1") != "0":
        # rows of texts that were deleted before, as by one who died here, have no condition
        anywhere = _texts(table) or entry.gone is not None
        tasks = table.scan(None if anywhere else entry.where).plan().tasks
        files = frozenset(task.data_file.file_path for task in tasks if task.deletes)
        table.compact(CompactionOptions(files=files, rewrite_all=True))
    table.rewrite_manifests(ManifestRewriteOptions(force=True))
    _expired(table)
    cut_log(table.catalog, table.refresh().version)
    table.remove_orphan_files(OrphanOptions(purge_trash_older_than_ms=table.environment.now_ms()))


def _expired(table: Table) -> None:
    now = table.environment.now_ms() + 1
    table.expire_snapshots(
        ExpiryOptions(older_than_ms=now, retain_last=1, remove_old_metadata=True)
    )


def _searched(
    table: Table, entry: TableOfPerson, before: Collection[str]
) -> tuple[int, dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """As `traces_in`, once metadata files that hold it are gone from the log."""
    traces = traces_in(table, entry.key, before, entry.lines)
    if any(file.endswith((".json", ".json.gz")) for file in traces[1]):
        # earlier metadata files that the log names: the log is cut
        kept = table.metadata.properties.get(_LOG)
        try:
            for _ in range(2):
                table.set_properties({_LOG: "1"})
            _expired(table)
        finally:
            if kept is None:
                table.remove_properties(_LOG)
            else:
                table.set_properties({_LOG: kept})
        traces = traces_in(table, entry.key, before, entry.lines)
    return traces


def _of_nobody_else(table: Table, texts: Sequence[str]) -> tuple[str, ...]:
    """Some of these texts that are in no row, name or property of a table: the longest."""
    metadata = table.metadata
    known = [metadata.location, *metadata.properties.values()]
    known += [name for schema in metadata.schemas for name in schema.column_names]
    names_of_table = "\n".join(
        [*known, *(field.doc or "" for field in table.schema().fields)]
    ).lower()
    left = [text for text in texts if _is_telling(text) and text.lower() not in names_of_table]
    left = sorted(left, key=lambda text: (-len(text), text))[:_TEXTS]
    names = [
        field.name for field in table.schema().fields if isinstance(field.field_type, StringType)
    ]
    if left and names and metadata.current_snapshot_id is not None:
        for batch in table.scan(select=names).to_batches():
            columns = [pc.drop_null(pc.unique(column)) for column in batch.columns]
            left = [
                text
                for text in left
                if not any(
                    pc.any(pc.match_substring(column, text, ignore_case=True)).as_py()
                    for column in columns
                )
            ]
    return tuple(left)


def _is_telling(text: str) -> bool:
    """Whether a text is long enough and neither a time nor a short number."""
    is_time = _TIME.match(text) is not None
    return len(text) >= LONG_TEXT and not is_time and not (text.isdigit() and len(text) < _DIGITS)


def _reached(table: Table) -> set[str]:
    """Keys of the files that the newest version of a table reaches."""
    version = table.catalog.load(table.identifier)
    walker = StorageWalker(table.storage, version.metadata)
    return reachable_keys(version.metadata, version.metadata_location, walker, LocationKeys())


def traces_in(
    table: Table, key: Key, before: Collection[str] = (), lines: LandedLines | None = None
) -> tuple[int, dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """How many files a table has, and which hold a value: those that a snapshot reaches, others.

    `before` are keys of files that it reached: outside its folders nobody deletes them.
    """
    version = table.catalog.load(table.identifier)
    storage, keys = table.storage, LocationKeys()
    reachable = _reached(table)
    folders = OwnFolders(table.catalog, version.metadata).folders
    listed = chain.from_iterable(map(storage.list, folders))
    files = {keys.key(info.location): info.location for info in listed}
    known = reachable.union(before) - files.keys()
    files |= {path: path for path in known if storage.exists(path)}
    traces = Traces(key, storage, version.metadata, _texts(table), lines)
    left: dict[str, tuple[str, ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    for name, places in traces.in_all(files):
        (left if name in reachable else others)[files[name]] = tuple(places)
    return len(files), left, others


def _recorded(lake: Lakehouse, done: Forgetting) -> None:
    """A row without the value."""
    if not lake.table_exists(FORGOTTEN):
        lake.create_table(FORGOTTEN, _SCHEMA)
    row = {
        "forgotten_at": datetime.now(UTC),
        "column": done.column,
        "tables": orjson.dumps({table.name: table.rows for table in done.tables}).decode(),
        "rows": sum(table.rows for table in done.tables),
        "files_searched": done.searched,
        "files_left": len(done.left) + len(done.unreachable),
    }
    lake.load_table(FORGOTTEN).append(pa.Table.from_pylist([row], _SCHEMA))
