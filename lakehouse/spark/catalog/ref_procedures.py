"""Procedures that make and drop branches and tags (Iceberg's `ALTER TABLE ... CREATE BRANCH`)."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.errors import InvalidInputError
from lakehouse.spark.catalog.procedure import Call, Procedure, Rows
from lakehouse.spec.metadata.snapshot import RefType
from lakehouse.transaction.transaction import Transaction


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


_TABLE = {"table": "STRING"}
_AT = {"snapshot_id": "BIGINT", "replace": "BOOLEAN", "if_not_exists": "BOOLEAN"}
_GONE = {"if_exists": "BOOLEAN"}
_AGE = {"max_ref_age_ms": "BIGINT"}
_RETENTION = {**_AGE, "min_snapshots_to_keep": "INT", "max_snapshot_age_ms": "BIGINT"}


def _named(kind: str) -> dict[str, str]:
    return {kind: "STRING", "snapshot_id": "BIGINT"}


PROCEDURES = (
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
