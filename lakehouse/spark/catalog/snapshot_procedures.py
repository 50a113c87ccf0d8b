"""Procedures about snapshots, branches and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.spark.catalog.procedure import Call, Procedure, Rows, number_of
from lakehouse.spark.reading.worker_reader import shown_frame
from lakehouse.spec.metadata.snapshot import RefType, Snapshot
from lakehouse.table.table import Table
from lakehouse.table.times import to_ms
from lakehouse.transaction.operations.branches_and_tags import WAP_ID
from lakehouse.transaction.transaction import Transaction

_TABLE = {"table": "STRING"}
_MOVED = {"previous_snapshot_id": "BIGINT", "current_snapshot_id": "BIGINT"}


def _rollback_to_snapshot(call: Call) -> Rows:
    """Point main back at one of its ancestors."""
    table = call.table()
    before = table.metadata.current_snapshot_id
    table.rollback_to(call.arguments["snapshot_id"])
    return [(before, table.metadata.current_snapshot_id)]


def _rollback_to_timestamp(call: Call) -> Rows:
    """Point main back at what was current at a time."""
    table = call.table()
    at_ms = to_ms(call.time("timestamp") or 0)
    before = table.metadata.current_snapshot_id
    earlier = [ancestor for ancestor in _ancestors(table, before) if ancestor.timestamp_ms < at_ms]
    if not earlier:
        raise NoSuchSnapshotError(f"{table.name} has no snapshot that is older than that")
    table.rollback_to(earlier[0].snapshot_id)
    return [(before, table.metadata.current_snapshot_id)]


def _set_current_snapshot(call: Call) -> Rows:
    """Make any snapshot, or the head of a branch or tag, the current one."""
    table = call.table()
    snapshot_id, ref = call.get("snapshot_id"), call.get("ref")
    if (snapshot_id is None) == (ref is None):
        raise InvalidInputError("CALL system.set_current_snapshot: give snapshot_id or ref")
    if snapshot_id is None:
        snapshot_id = table.metadata.ref(ref).snapshot_id
    before = table.metadata.current_snapshot_id
    table.move_to(table.transaction().set_current_snapshot(snapshot_id).commit().version)
    return [(before, table.metadata.current_snapshot_id)]


def _cherrypick_snapshot(call: Call) -> Rows:
    """Apply what a snapshot appended onto main."""
    table = call.table()
    table.cherry_pick(call.arguments["snapshot_id"])
    return [(call.arguments["snapshot_id"], table.metadata.current_snapshot_id)]


def _publish_changes(call: Call) -> Rows:
    """Apply what was staged under a `spark.wap.id` onto main."""
    table, wap_id = call.table(), call.arguments["wap_id"]
    staged = [snapshot for snapshot in table.snapshots() if snapshot.summary.get(WAP_ID) == wap_id]
    if len(staged) != 1:
        raise InvalidInputError(
            f"{table.name} has {len(staged) or 'no'} snapshots with wap.id {wap_id}, and one is "
            "published: name it by CALL system.cherrypick_snapshot",
            table=table.name,
        )
    table.cherry_pick(staged[0].snapshot_id)
    return [(staged[0].snapshot_id, table.metadata.current_snapshot_id)]


def _fast_forward(call: Call) -> Rows:
    """Point a branch at the head of another one, its descendant."""
    table = call.table()
    branch = call.arguments["branch"]
    before = table.refs().get(branch)
    table.fast_forward(branch, call.arguments["to"])
    after = table.refs()[branch].snapshot_id
    return [(branch, None if before is None else before.snapshot_id, after)]


def _ancestors_of(call: Call) -> Rows:
    """The ancestors of a snapshot, the current one by default, newest first."""
    table = call.table()
    head = call.get("snapshot_id") or table.metadata.current_snapshot_id
    return [(ancestor.snapshot_id, ancestor.timestamp_ms) for ancestor in _ancestors(table, head)]


def _register_table(call: Call) -> Rows:
    """Take an existing table into the catalog by the location of its metadata file."""
    table = call.lake.register_table(call.name(), call.arguments["metadata_file"])
    snapshot = table.current_snapshot()
    if snapshot is None:
        return [(None, None, None)]
    counts = (snapshot.summary.get(key) for key in ("total-records", "total-data-files"))
    return [(snapshot.snapshot_id, *(None if count is None else int(count) for count in counts))]


def _create_changelog_view(call: Call) -> Rows:
    """A temporary view of the rows that came and went after one snapshot up to another."""
    table, options = call.table(), call.options()
    bounds = _bounds_of_changes(table, options)
    keys = call.get("identifier_columns")
    asked = call.get("compute_updates", keys is not None)
    changes = table.changelog(
        *bounds,
        net=bool(call.get("net_changes")),
        updates=(keys or True) if asked else False,
    )
    view = call.get("changelog_view") or f"{table.identifier.name}_changes"
    shown_frame(call.spark, changes.to_arrow()).createOrReplaceTempView(view)
    return [(view,)]


def _bounds_of_changes(table: Table, options: Mapping[str, str]) -> list[int | None]:
    """The snapshot after which changes begin, and the last one of them; None: the first, the head.

    Raises InvalidInputError for an option that is not known, or two of the same bound.
    """
    known = [f"{end}-{by}" for by in ("snapshot-id", "timestamp") for end in ("start", "end")]
    if not set(known).issuperset(options) or any(
        {f"{end}-snapshot-id", f"{end}-timestamp"} <= options.keys() for end in ("start", "end")
    ):
        raise InvalidInputError(
            f"CALL system.create_changelog_view: options are {', '.join(known)}, and one a bound"
        )
    bounds: list[int | None] = []
    for bound in ("start", "end"):
        id_: int | str | None = options.get(f"{bound}-snapshot-id")
        if (at := options.get(f"{bound}-timestamp")) is not None:
            latest = number_of(f"{bound}-timestamp", at)
            until = (
                ancestor.snapshot_id
                for ancestor in _ancestors(table, table.metadata.current_snapshot_id)
                if ancestor.timestamp_ms <= latest
            )
            id_ = next(until, None)
            if id_ is None and bound == "end":
                raise InvalidInputError(
                    f"CALL system.create_changelog_view: {table.name} has no snapshot at or before "
                    f"{bound}-timestamp {at}",
                    table=table.name,
                )
        bounds.append(None if id_ is None else number_of(f"{bound}-snapshot-id", str(id_)))
    return bounds


def _ancestors(table: Table, snapshot_id: int | None) -> list[Snapshot]:
    return [] if snapshot_id is None else list(table.metadata.ancestors(snapshot_id))


_OF_SNAPSHOTS = (
    Procedure(
        "rollback_to_snapshot",
        {**_TABLE, "snapshot_id": "BIGINT"},
        {},
        _MOVED,
        _rollback_to_snapshot,
    ),
    Procedure(
        "rollback_to_timestamp",
        {**_TABLE, "timestamp": "TIMESTAMP"},
        {},
        _MOVED,
        _rollback_to_timestamp,
    ),
    Procedure(
        "set_current_snapshot",
        _TABLE,
        {"snapshot_id": "BIGINT", "ref": "STRING"},
        _MOVED,
        _set_current_snapshot,
    ),
    Procedure(
        "cherrypick_snapshot",
        {**_TABLE, "snapshot_id": "BIGINT"},
        {},
        {"source_snapshot_id": "BIGINT", "current_snapshot_id": "BIGINT"},
        _cherrypick_snapshot,
    ),
    Procedure(
        "publish_changes",
        {**_TABLE, "wap_id": "STRING"},
        {},
        {"source_snapshot_id": "BIGINT", "current_snapshot_id": "BIGINT"},
        _publish_changes,
    ),
    Procedure(
        "fast_forward",
        {**_TABLE, "branch": "STRING", "to": "STRING"},
        {},
        {"branch_updated": "STRING", "previous_ref": "BIGINT", "updated_ref": "BIGINT"},
        _fast_forward,
    ),
    Procedure(
        "ancestors_of",
        _TABLE,
        {"snapshot_id": "BIGINT"},
        {"snapshot_id": "BIGINT", "timestamp": "BIGINT"},
        _ancestors_of,
    ),
    Procedure(
        "register_table",
        {**_TABLE, "metadata_file": "STRING"},
        {},
        {
            "current_snapshot_id": "BIGINT",
            "total_records_count": "BIGINT",
            "total_data_files_count": "BIGINT",
        },
        _register_table,
    ),
    Procedure(
        "create_changelog_view",
        _TABLE,
        {
            "changelog_view": "STRING",
            "options": "MAP<STRING, STRING>",
            "compute_updates": "BOOLEAN",
            "identifier_columns": "ARRAY<STRING>",
            "net_changes": "BOOLEAN",
        },
        {"changelog_view": "STRING"},
        _create_changelog_view,
    ),
)


def _create_branch(call: Call) -> Rows:
    """Begin a branch: ALTER TABLE ... CREATE [OR REPLACE] BRANCH."""
    return _create(
        call, "branch", ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    )


def _create_tag(call: Call) -> Rows:
    """Name a snapshot: ALTER TABLE ... CREATE [OR REPLACE] TAG."""
    return _create(call, "tag", ("max_ref_age_ms",))


def _create(call: Call, kind: RefType, retention: Sequence[str]) -> Rows:
    table, name = call.table(), call.arguments[kind]
    known = table.metadata.refs.get(name)
    if known is not None and call.get("if_not_exists"):
        return [(name, known.snapshot_id)]
    transaction = table.transaction()
    if known is not None and call.get("replace"):
        _drop_from(transaction, call, kind)
    kept = {argument: call.get(argument) for argument in retention}
    make = transaction.create_branch if kind == "branch" else transaction.create_tag
    make(name, call.get("snapshot_id"), **kept)
    table.move_to(transaction.commit().version)
    return [(name, table.metadata.refs[name].snapshot_id)]


def _drop_branch(call: Call) -> Rows:
    """Drop a branch: ALTER TABLE ... DROP BRANCH."""
    return _drop(call, "branch")


def _drop_tag(call: Call) -> Rows:
    """Drop a tag: ALTER TABLE ... DROP TAG."""
    return _drop(call, "tag")


def _drop(call: Call, kind: RefType) -> Rows:
    table, name = call.table(), call.arguments[kind]
    known = table.metadata.refs.get(name)
    if known is None and call.get("if_exists"):
        return []
    transaction = table.transaction()
    _drop_from(transaction, call, kind)
    table.move_to(transaction.commit().version)
    return [(name, None if known is None else known.snapshot_id)]


def _drop_from(transaction: Transaction, call: Call, kind: RefType) -> None:
    name = call.arguments[kind]
    known = transaction.metadata.refs.get(name)
    if known is not None and known.type != kind:
        raise InvalidInputError(f"{name} is a {known.type} of {transaction.identifier}, no {kind}")
    transaction.remove_ref(name)


_AT = {"snapshot_id": "BIGINT", "replace": "BOOLEAN", "if_not_exists": "BOOLEAN"}
_GONE = {"if_exists": "BOOLEAN"}
_AGE = {"max_ref_age_ms": "BIGINT"}
_RETENTION = {**_AGE, "min_snapshots_to_keep": "INT", "max_snapshot_age_ms": "BIGINT"}


def _named(kind: str) -> dict[str, str]:
    return {kind: "STRING", "snapshot_id": "BIGINT"}


_OF_REFS = (
    Procedure(
        "create_branch",
        {**_TABLE, "branch": "STRING"},
        {**_AT, **_RETENTION},
        _named("branch"),
        _create_branch,
    ),
    Procedure(
        "create_tag", {**_TABLE, "tag": "STRING"}, {**_AT, **_AGE}, _named("tag"), _create_tag
    ),
    Procedure("drop_branch", {**_TABLE, "branch": "STRING"}, _GONE, _named("branch"), _drop_branch),
    Procedure("drop_tag", {**_TABLE, "tag": "STRING"}, _GONE, _named("tag"), _drop_tag),
)

PROCEDURES = (*_OF_SNAPSHOTS, *_OF_REFS)
