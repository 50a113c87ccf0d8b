"""Statements of Iceberg's extension of Spark's grammar, as the procedures that stand for them."""

from __future__ import annotations

import re

_ALTER = r"ALTER TABLE (?P<table>\S+) "
_REF = (
    r"CREATE (?P<replace>OR REPLACE )?(?P<kind>BRANCH|TAG) (?P<ref>\w+)"
    r"(?: AS OF VERSION (?P<version>\S+))?(?: RETAIN (?P<days>\d+) DAYS)?"
)
_FORMS = (
    (_REF, "create_{kind}"),
    (r"DROP (?P<kind>BRANCH|TAG) (?P<ref>\w+)", "drop_{kind}"),
    (r"ADD PARTITION FIELD (?P<field>\S.*?)(?: AS (?P<name>\w+))?", "add_partition_field"),
    (r"DROP PARTITION FIELD (?P<field>.+)", "drop_partition_field"),
    (r"REPLACE PARTITION FIELD (?P<field>.+) WITH (?P<by>.+)", "replace_partition_field"),
    (r"WRITE ORDERED BY (?P<sort_order>.+)", "write_ordered_by"),
    (r"WRITE LOCALLY ORDERED BY (?P<sort_order>.+)", "write_locally_ordered_by"),
    (r"WRITE DISTRIBUTED BY PARTITION", "write_distributed_by_partition"),
    (r"WRITE UNORDERED", "write_unordered"),
    (r"SET IDENTIFIER FIELDS (?P<fields>.+)", "set_identifier_fields"),
    (r"DROP IDENTIFIER FIELDS (?P<fields>.+)", "drop_identifier_fields"),
)
_DAY_MS = 24 * 60 * 60 * 1000


def as_procedure(statement: str) -> str | None:
    """The call that does the same; None for a statement of Spark's own grammar."""
    for form, procedure in _FORMS:
        found = re.fullmatch(_ALTER + form, statement)
        if found is not None:
            told = {name: one for name, one in found.groupdict().items() if one is not None}
            kind = told.pop("kind", "").lower()
            arguments = [_argument(name, one, kind) for name, one in told.items()]
            return f"CALL lake.system.{procedure.format(kind=kind)}({', '.join(arguments)})"
    return None


def _argument(name: str, told: str, kind: str) -> str:
    if name == "replace":
        return "replace => true"
    if name == "version":
        return f"snapshot_id => {told}"
    if name == "days":
        return f"max_ref_age_ms => {int(told) * _DAY_MS}"
    if name == "fields":
        listed = ", ".join(f"'{one.strip()}'" for one in told.split(","))
        return f"fields => array({listed})"
    return f"{kind if name == 'ref' else name} => '{told}'"
