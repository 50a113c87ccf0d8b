"""Commits to several tables at once."""

from __future__ import annotations

from typing import Any

from lakehouse.server.access.asked_privileges import of_transaction
from lakehouse.server.http_messages import Answer, Call, identifier_from_json
from lakehouse.server.operations.table_operations import changes_from_json
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.table_commits import AskedCommit
from lakehouse.spec.json_fields import require_list, require_object


def commit_transaction(served: Served, call: Call) -> Answer:
    """Of all tables or of none."""
    document = call.document()
    asked = call.read(lambda: require_list(document.get("table-changes"), "table-changes"))
    served.commits.commit_all([_asked(served, call, one) for one in asked])
    return Answer()


def _asked(served: Served, call: Call, item: Any) -> AskedCommit:
    document = call.read(lambda: require_object(item, "table-changes"))
    identifier = call.read(lambda: identifier_from_json(document.get("identifier"), "identifier"))
    return AskedCommit(identifier, *changes_from_json(served, call, identifier, document))


TRANSACTION_OPERATIONS = (
    Operation(
        "POST", "/transactions/commit", commit_transaction, changes=True, asks=of_transaction
    ),
)
