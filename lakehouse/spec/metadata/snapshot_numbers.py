"""The numbers that a snapshot brings: those of versions and of rows, as the format version says."""

from __future__ import annotations

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec

from lakehouse.errors import CommitConflictError, InvalidInputError, InvalidPartitionSpecError
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.schema_json import ID_MAX


def check_snapshot_numbers(m: TableMetadata, snapshot: Snapshot) -> None:
    """Raise an error unless the next snapshot of a table may have its sequence number and schema.

    One without a parent holds no file of others: its number may be taken. v1 has no such numbers.

    Raises:
        CommitConflictError: the sequence number is taken.
        InvalidInputError: it is below 0, v1 has none, nor row ids; or no schema has the id.
    """
    schema_ids = [schema.schema_id for schema in m.schemas]
    if snapshot.schema_id is not None and snapshot.schema_id not in schema_ids:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} has the schema {snapshot.schema_id}, which table "
            f"{m.location} lacks: it has {', '.join(map(str, schema_ids))}."
        )
    if snapshot.sequence_number < 0:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} of table {m.location} cannot have the sequence "
            f"number {snapshot.sequence_number}."
        )
    if m.format_version == 1:
        if snapshot.sequence_number != 0 or snapshot.first_row_id is not None:
            raise InvalidInputError(
                f"Snapshot {snapshot.snapshot_id} has a sequence number or row ids, which table "
                f"{m.location} of format version 1 has not: upgrade the table first."
            )
        return
    has_parent = snapshot.parent_snapshot_id is not None
    if has_parent and snapshot.sequence_number <= m.last_sequence_number:
        raise CommitConflictError(
            f"Not committed: sequence number {snapshot.sequence_number} is taken, table "
            f"{m.location} is at {m.last_sequence_number}. Refresh the table and apply the "
            "change again."
        )


def next_row_id(m: TableMetadata, snapshot: Snapshot) -> int | None:
    """The table's `next-row-id` with the snapshot; None before v3.

    Raises CommitConflictError: its row ids are taken; InvalidInputError: it says none.
    """
    if m.format_version < 3:
        return None
    if snapshot.first_row_id is None or snapshot.added_rows is None or snapshot.added_rows < 0:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} of a v3 table needs first-row-id and added-rows."
        )
    free = m.next_row_id or 0
    if snapshot.first_row_id < free:
        raise CommitConflictError(
            f"Not committed: first-row-id {snapshot.first_row_id} is taken, table "
            f"{m.location} is at {free}. Refresh the table and apply the change again."
        )
    return snapshot.first_row_id + snapshot.added_rows


def check_field_numbers(m: TableMetadata, spec: PartitionSpec) -> None:
    """Raise InvalidPartitionSpecError unless every reader has the fields' ids as they are.

    They are ints. Readers of v1 count from 1000, whatever is written (spec: Partition Evolution).
    """
    for field in spec.fields:
        if not 0 <= field.field_id <= ID_MAX:
            raise InvalidPartitionSpecError(
                f"Partition field {field.name!r} cannot have the id {field.field_id}."
            )
    counted = [PARTITION_FIELD_ID_START + position for position in range(len(spec.fields))]
    if m.format_version == 1 and [field.field_id for field in spec.fields] != counted:
        raise InvalidPartitionSpecError(
            f"Table {m.location} has format version 1, in which the fields of a partition spec "
            f"have ids that count from {PARTITION_FIELD_ID_START}: keep removed ones as void."
        )
