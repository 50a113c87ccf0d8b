"""Pages about one table: what it is, what changed it, its columns over time, rows, lineage.

Each reads the table's metadata; those of lineage and of statements also read that of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.curation.checkup import check
from lakehouse.curation.statement_store import DIGEST
from lakehouse.curation.survey import Survey, survey
from lakehouse.errors import InvalidIdentifierError, LakehouseError, NoSuchTableError
from lakehouse.maintenance.shown_plan import human_bytes
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.statements import Draft
from lakehouse.server.access.asked_privileges import PRINCIPAL, reads
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.rest_operation import Served
from lakehouse.server.watching.catalog_pages import readable_tables, versions
from lakehouse.server.watching.page_rendering import (
    age,
    clock,
    dagster_asset,
    dagster_run,
    html_page,
    number,
    table_path,
)
from lakehouse.server.watching.sample_rows import sample_rows
from lakehouse.server.watching.table_state import (
    INPUTS_MAX,
    TableState,
    computed_from,
    newer_than,
    readable_table,
)
from lakehouse.server.watching.view_pages import view_readers
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import ASSET_KEY, OPERATION_REPLACE, RUN_ID, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table.html_view import column_rows, partitioning, sorting

SNAPSHOTS_MAX = 100
"""Of a page, the newest first."""
SNAPSHOTS_SHOWN = 5
"""Of the page of a table, which has a link to the others."""
COLUMNS_MAX = 1000
SCHEMAS_MAX = 100
_COMMENTS_MAX = 3
DEPTH_MAX = 8
"""Tables that are followed upstream, and how far."""
READERS_MAX = 500
"""Tables whose metadata a page reads to find out whether they read this one."""
JUDGED_FILES_MAX = 100_000
"""Data files of the tables that statements are about, for these to be judged on a page."""
COUNTED_ROWS_MAX, REASONS_MAX = 1_000_000, 50
"""Rows of a quarantine that are counted by reason on its page, and reasons that are shown."""
_QUARANTINE, _LANDING = "_quarantine", "_landing"
"""What the names of a source's tables end with, beside that of its rows."""
_WRITERS = ("engine-name", "spark.app.id")
Page = Callable[[Served, TableVersion, Call], Answer]


def _of_table(page: Page) -> Callable[[Served, Call], Answer]:
    """Load the table of the path; 404 with a page where there is none."""

    @wraps(page)
    def load(served: Served, call: Call) -> Answer:
        try:
            version = served.tables.newest(call.table())
        except (NoSuchTableError, InvalidIdentifierError) as error:
            return html_page("missing.html", served, 404, message=error.message)
        return page(served, version, call)

    return load


def _table_html(template: str, served: Served, version: TableVersion, **values: Any) -> Answer:
    here = template.removesuffix(".html")
    tabs = [
        (name, table_path(version.identifier, "" if name == "table" else name), name == here)
        for name in ("table", "snapshots", "schema", "sample", "lineage")
    ]
    return html_page(template, served, table=str(version.identifier), tabs=tabs, **values)


@_of_table
def table_page(served: Served, version: TableVersion, _call: Call) -> Answer:
    """What it is, how fresh, whether its statements hold, where it is from, how to read it."""
    metadata, state = version.metadata, TableState.of(version)
    statements = _statements(served, version)
    columns = column_rows(metadata)
    ordered = _newest_first(metadata)
    return _table_html(
        "table.html",
        served,
        version,
        state=state,
        summary=_summary(served, version, state, statements["rows"]),
        facts=_facts(version),
        columns=columns[:COLUMNS_MAX],
        more_columns=max(len(columns) - COLUMNS_MAX, 0),
        refs=[(name, ref.type, ref.snapshot_id) for name, ref in sorted(metadata.refs.items())],
        properties=sorted(metadata.properties.items()),
        snapshots=_changes(served, metadata, ordered[:SNAPSHOTS_SHOWN]),
        count=len(ordered),
        statements=statements,
        inputs=computed_from(served, state),
        asset=(state.asset, dagster_asset(served, state.asset)),
        beside=_beside(served, version.identifier, state),
        reasons=_reasons(served, version),
        pages={name: table_path(version.identifier, name) for name in ("snapshots", "sample")},
    )


@_of_table
def snapshots_page(served: Served, version: TableVersion, call: Call) -> Answer:
    """What each snapshot changed, the newest first, so many from the one numbered `from`."""
    text = call.query.get("from", "0")
    first = int(text) if text.isdecimal() and len(text) < 10 else 0
    ordered = _newest_first(version.metadata)
    shown = ordered[first : first + SNAPSHOTS_MAX]
    following = first + len(shown)
    return _table_html(
        "snapshots.html",
        served,
        version,
        snapshots=_changes(served, version.metadata, shown),
        count=len(ordered),
        first=first + 1 if shown else 0,
        last=following,
        more=f"?from={following}" if following < len(ordered) else "",
    )


@_of_table
def schema_page(served: Served, version: TableVersion, _call: Call) -> Answer:
    """What each schema changed of the one before, the newest first."""
    metadata = version.metadata
    used: dict[int | None, Snapshot] = {}
    for snapshot in sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        used.setdefault(snapshot.schema_id, snapshot)
    ordered = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    pairs = list(zip([None, *ordered], ordered, strict=False))[::-1]
    rows = [
        {
            "id": schema.schema_id,
            "current": schema.schema_id == metadata.current_schema_id,
            "since": clock(first.timestamp_ms) if (first := used.get(schema.schema_id)) else "",
            "changes": [f"{len(schema.field_ids)} fields"]
            if before is None
            else _schema_changes(before, schema),
        }
        for before, schema in pairs[:SCHEMAS_MAX]
    ]
    return _table_html(
        "schema.html", served, version, schemas=rows, left=max(len(pairs) - SCHEMAS_MAX, 0)
    )


@_of_table
def sample_page(served: Served, version: TableVersion, _call: Call) -> Answer:
    """The first rows of one of its newest files."""
    sample, problem = None, ""
    try:
        storage = served.catalog.storage(version.metadata.location)
        sample = sample_rows(version.metadata, storage)
    except LakehouseError as error:
        problem = error.message
    return _table_html("sample.html", served, version, sample=sample, problem=problem)


@_of_table
def lineage_page(served: Served, version: TableVersion, call: Call) -> Answer:
    """What it was computed from, however far up, and what was computed from it."""
    name = str(version.identifier)
    every = [table for table in readable_tables(served) if table != version.identifier]
    after = call.query.get("after", "")
    following = [name for name in every if str(name) > after]
    looked = following[:READERS_MAX]
    readers = [
        {
            "name": str(reader),
            "path": table_path(reader, "lineage"),
            "asset": state.asset,
            "dagster": dagster_asset(served, state.asset),
            "behind": newer_than(version.metadata, state.inputs[name]),
        }
        for reader, of_reader in versions(served, looked)
        if isinstance(of_reader, TableVersion)
        and (state := TableState.of(of_reader)).inputs
        and name in state.inputs
    ]
    state = TableState.of(version)
    return _table_html(
        "lineage.html",
        served,
        version,
        name=name,
        asset=state.asset,
        dagster=dagster_asset(served, state.asset),
        upstream=list(_upstream(served, version)),
        beside=_beside(served, version.identifier, state),
        readers=readers,
        views=[] if after else view_readers(served, version.identifier),
        looked=len(every) - len(following) + len(looked),
        every=len(every),
        more=str(looked[-1]) if len(looked) < len(following) else "",
    )


def _newest_first(metadata: TableMetadata) -> list[Snapshot]:
    return sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True)


def _summary(
    served: Served, version: TableVersion, state: TableState, stated: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """The first lines: how much, how fresh, whose, whether the statements hold."""
    written = version.metadata.last_updated_ms
    counts = dict.fromkeys(("verified", "unverified", "contradicted", "expired"), 0)
    for statement in stated:
        if statement["state"] in counts:
            counts[statement["state"]] += 1
    changed = state.changed_ms
    lines = [
        ("rows", state.rows),
        (
            "size",
            f"{state.size} in {_count(state.files, 'file')}" if state.size and state.files else "",
        ),
        (
            "rows changed",
            "never" if changed is None else f"{age(served, changed)} ({clock(changed)} UTC)",
        ),
        ("last commit", f"{age(served, written)} ({clock(written)} UTC)"),
        ("owner", state.owner),
        (
            "freshness",
            "; ".join(
                f"{statement['text']}: {statement['state']}"
                for statement in stated
                if statement["kind"] == Kind.FRESHNESS
            ),
        ),
        ("behind its inputs", ", ".join(state.behind[:10]) + (" …" if state.behind[10:] else "")),
        (
            "what is said of it",
            ", ".join(f"{count} {name}" for name, count in counts.items() if count),
        ),
    ]
    return [(name, text) for name, text in lines if text]


def _count(number_text: str, noun: str) -> str:
    return f"{number_text} {noun}{'' if number_text == '1' else 's'}"


def _facts(version: TableVersion) -> list[tuple[str, str]]:
    metadata = version.metadata
    facts = [
        ("partitioned by", partitioning(metadata)),
        ("sorted by", sorting(metadata)),
        ("location", hide_in_urls(metadata.location)),
        ("metadata file", hide_in_urls(version.metadata_location)),
        ("format version", str(metadata.format_version)),
        ("uuid", metadata.table_uuid),
    ]
    return [(name, text) for name, text in facts if text]


def _changes(
    served: Served, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> list[dict[str, Any]]:
    return [_change(served, metadata, snapshot) for snapshot in snapshots]


def _change(served: Served, metadata: TableMetadata, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot, and what it changed, as its summary says (specification: Snapshot Summary)."""
    summary = snapshot.summary
    parent = metadata.snapshot_or_none(snapshot.parent_snapshot_id or -1)
    run = summary.get(RUN_ID, "")
    size = summary.get("added-files-size", "")
    return {
        "id": str(snapshot.snapshot_id),
        "current": snapshot.snapshot_id == metadata.current_snapshot_id,
        "at": clock(snapshot.timestamp_ms),
        "operation": snapshot.operation or "",
        "same_rows": snapshot.operation == OPERATION_REPLACE,
        "added_rows": number(summary.get("added-records")),
        "removed_rows": number(summary.get("deleted-records")),
        "added_files": number(summary.get("added-data-files")),
        "removed_files": number(summary.get("deleted-data-files")),
        "added_size": human_bytes(int(size)) if size.isdecimal() and len(size) < 20 else size,
        "rows": number(summary.get("total-records")),
        "new_schema": parent is not None and parent.schema_id != snapshot.schema_id,
        "by": next(
            (summary[key] for key in (PRINCIPAL, ASSET_KEY, *_WRITERS) if key in summary), ""
        ),
        "run": run,
        "run_page": dagster_run(served, run) if run else "",
    }


def _schema_changes(before: Any, after: Any) -> list[str]:
    """What became of the fields, by their ids."""
    old = {field_id: before.find_field(field_id) for field_id in before.field_ids}
    new = {field_id: after.find_field(field_id) for field_id in after.field_ids}

    def path(schema: Any, field_id: int) -> str:
        return schema.find_column_name(field_id) or f"field {field_id}"

    changes = [
        f"{path(after, field_id)} was added: {new[field_id].field_type}"
        for field_id in new
        if field_id not in old
    ]
    changes += [f"{path(before, field_id)} was dropped" for field_id in old if field_id not in new]
    for field_id in sorted(old.keys() & new.keys()):
        was, now = path(before, field_id), path(after, field_id)
        if was != now:
            changes.append(f"{was} was renamed to {now}")
        if old[field_id].field_type.is_primitive and str(old[field_id].field_type) != str(
            new[field_id].field_type
        ):
            changes.append(
                f"{now} was {old[field_id].field_type} and is {new[field_id].field_type}"
            )
        if old[field_id].required != new[field_id].required:
            changes.append(f"{now} became {'required' if new[field_id].required else 'optional'}")
    commented = [
        field_id
        for field_id in old.keys() & new.keys()
        if (old[field_id].doc or "") != (new[field_id].doc or "")
    ]
    if len(commented) > _COMMENTS_MAX:
        changes.append(f"the comments of {len(commented)} columns were changed")
    else:
        changes += [
            f"{path(after, field_id)}: {(new[field_id].doc or 'no comment')[:200]}"
            for field_id in commented
        ]
    order = [field.field_id for field in after.fields]
    if not changes and order != [field.field_id for field in before.fields]:
        changes.append("columns were moved")
    return changes or ["nothing but its number"]


def _upstream(served: Served, version: TableVersion) -> Iterator[dict[str, Any]]:
    """What a table was computed from, and what that was computed from; each table once."""
    seen = {version.identifier}
    level = [version]
    for depth in range(1, DEPTH_MAX + 1):
        following = []
        for table in level:
            for table_input in computed_from(served, TableState.of(table)):
                of_input = table_input["version"]
                if of_input is not None and of_input.identifier in seen:
                    continue
                if len(seen) > INPUTS_MAX:
                    return
                state = TableState() if of_input is None else TableState.of(of_input)
                yield {
                    **table_input,
                    "depth": depth,
                    "of": str(table.identifier),
                    "asset": state.asset,
                    "dagster": dagster_asset(served, state.asset),
                }
                if of_input is not None:
                    seen.add(of_input.identifier)
                    following.append(of_input)
        level = following


def _beside(
    served: Served, identifier: Identifier, state: TableState
) -> list[tuple[str, str, str]]:
    """The other tables of its source: what they hold, their path and rows."""
    if state.inputs is not None:
        return []
    name = str(identifier)
    beside = []
    for ending, what in ((_LANDING, "ledger of landed files"), (_QUARANTINE, "quarantine")):
        version = (
            None
            if name.endswith((_LANDING, _QUARANTINE))
            else readable_table(served, name + ending)
        )
        if version is not None:
            rows = TableState.of(version).rows
            beside.append((what, table_path(version.identifier), _count(rows, "row")))
    return beside


def _reasons(served: Served, version: TableVersion) -> list[tuple[str, str]]:
    """Why lines are in this quarantine and how many, the commonest first; none of other tables."""
    name = str(version.identifier)
    newest = version.metadata.current_snapshot()
    if (
        not name.endswith(_QUARANTINE)
        or "reason" not in version.metadata.schema().column_names
        or newest is None
    ):
        return []
    rows = newest.summary.get("total-records", "")
    if not rows.isdecimal() or int(rows) > COUNTED_ROWS_MAX:
        command = f"lakehouse quarantine {name.removesuffix(_QUARANTINE)}"
        return [(f"too many lines to count here: {command}", rows)]
    batches = served.lake.load_table(name).scan(select=["reason"]).to_batches()
    reasons = Counter(reason for batch in batches for reason in batch["reason"].to_pylist())
    return [(str(reason), f"{lines:,}") for reason, lines in reasons.most_common(REASONS_MAX)]


def _statements(served: Served, version: TableVersion) -> dict[str, Any]:
    """Statements about the table, with states; or that they cannot be read."""
    if DIGEST not in version.metadata.properties:
        return {"failure": "", "rows": []}
    try:
        seen = survey(served.lake, [str(version.identifier)]).restricted(reads(served.caller))
        files = _files(seen)
        if files > JUDGED_FILES_MAX:
            reason = f"{files:,} files are too many to judge it here: lakehouse semantics check"
            stated = [
                (seen.draft(statement), "unverified", reason) for statement in seen.statements
            ]
        else:
            checked, _ = check(seen, run_evidence=False)
            stated = [
                (statement.draft, str(statement.standing.state), statement.standing.reason)
                for statement in checked
            ]
    except LakehouseError as error:
        return {"failure": error.message, "rows": []}
    rows = [
        {
            "state": state,
            "kind": str(draft.kind),
            "column": draft.column or "",
            "text": draft.text or _claimed(draft),
            "reason": reason,
            "author": draft.author,
        }
        for draft, state, reason in stated
    ]
    return {"failure": "", "rows": rows}


def _claimed(draft: Draft) -> str:
    evidence = {} if draft.evidence is None else draft.evidence.to_json()
    return ", ".join(f"{key} {value}" for key, value in (draft.claim or evidence).items())


def _files(seen: Survey) -> int:
    """Data files of the tables that are looked at, as their newest snapshots say."""
    heads = [table.metadata.current_snapshot() for table in seen.tables.values()]
    counts = [head.summary.get("total-data-files", "") for head in heads if head is not None]
    return sum(int(text) for text in counts if text.isdecimal())
