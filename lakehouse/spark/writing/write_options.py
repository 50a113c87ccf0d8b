"""The options of Iceberg's writers in Spark: honoured, refused, or warned of."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql import SparkSession

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.errors import InvalidInputError
from lakehouse.spark.session_settings import properties_of_session
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.table.table import Table
from lakehouse.transaction.table_change import Isolation

logger = logging.getLogger(__name__)

_AS_PROPERTIES: Mapping[str, str] = {
    "target-file-size-bytes": "write.target-file-size-bytes",
    "compression-codec": "write.parquet.compression-codec",
    "compression-level": "write.parquet.compression-level",
    "distribution-mode": "write.distribution-mode",
    "shred-variants": "write.parquet.shred-variants",
    "variant-inference-buffer-size": "write.parquet.variant-inference-buffer-size",
}
"""Options that stand for a table property in this write."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "overwrite-mode": ("static", "dynamic"),
    "isolation-level": ("serializable", "snapshot"),
    "use-table-distribution-and-ordering": ("true", "false"),
}
_WITHOUT_EFFECT = ("fanout-enabled", "check-nullability", "check-ordering")
"""Files and rows are right with either value: rows are checked, and sorted where need be."""

_ELSEWHERE = ("merge-schema", "mergeschema")
_SNAPSHOT_PROPERTY = "snapshot-property."


@dataclass(frozen=True)
class WriteOptions:
    """What the options of one write ask for.

    Attributes:
        properties: table properties, as this write has them.
        dynamic: whether a write that replaces all rows replaces those of its partitions alone.
        isolation: what counts as a conflict; None: as the table says.
        validate_from: the snapshot since which others must not have changed what is replaced.
        as_they_come: whether rows are neither distributed nor sorted.
    """

    properties: Mapping[str, str]
    dynamic: bool = False
    isolation: Isolation | None = None
    validate_from: int | None = None
    as_they_come: bool = False

    def request(self, request: WriteRequest) -> WriteRequest:
        """How files are written."""
        properties = {**request.properties, **self.properties}
        if self.as_they_come:
            properties["write.distribution-mode"] = "none"
            return replace(request, properties=properties, sort_order=UNSORTED_SORT_ORDER)
        return replace(request, properties=properties)


NO_OPTIONS = WriteOptions({})


def write_options(
    spark: SparkSession, table: Table, mode: str, given: Mapping[str, str]
) -> WriteOptions:
    """The options of a write in a `mode`, before those the settings of the session.

    A warning names options that nothing honours.

    Raises:
        InvalidInputError: a value that an option does not have, and what is not honoured though
            it would change which rows or files the table has.
    """
    options = {key.lower(): text for key, text in given.items()}
    for name, choices in _CHOICES.items():
        if name in options:
            options[name] = options[name].lower()
            if options[name] not in choices:
                raise _refusal(table, name, options[name], f"is one of {', '.join(choices)}")
    file_format = options.get("write-format", "parquet")
    if file_format.lower() != "parquet":
        raise _refusal(table, "write-format", file_format, "is parquet, the one format written")
    spec = options.get("output-spec-id")
    if spec is not None and spec != str(table.metadata.default_spec_id):
        raise _refusal(
            table,
            "output-spec-id",
            spec,
            f"is {table.metadata.default_spec_id}, the table's partition spec: leave it out",
        )
    if mode == "dynamic" and options.get("overwrite-mode") == "static":
        raise _refusal(
            table, "overwrite-mode", "static", "contradicts a write that replaces its partitions"
        )
    _warn(table, given)
    return WriteOptions(
        properties={
            **properties_of_session(spark),
            **{
                name: options[option]
                for option, name in _AS_PROPERTIES.items()
                if option in options
            },
        },
        dynamic=options.get("overwrite-mode") == "dynamic",
        isolation=cast("Isolation | None", options.get("isolation-level")),
        validate_from=_validate_from(table, options),
        as_they_come=options.get("use-table-distribution-and-ordering") == "false",
    )


def _validate_from(table: Table, options: Mapping[str, str]) -> int | None:
    name = "validate-from-snapshot-id"
    text = options.get(name)
    if text is None:
        return None
    if "isolation-level" not in options:
        raise _refusal(table, name, text, "needs the option isolation-level beside it")
    try:
        snapshot_id = int(text)
    except ValueError as error:
        raise _refusal(table, name, text, "is the id of a snapshot") from error
    if all(snapshot.snapshot_id != snapshot_id for snapshot in table.metadata.snapshots):
        raise _refusal(table, name, text, "is the id of a snapshot that the table has")
    return snapshot_id


def _warn(table: Table, given: Mapping[str, str]) -> None:
    known = {
        *_AS_PROPERTIES,
        *_CHOICES,
        *_WITHOUT_EFFECT,
        *_ELSEWHERE,
        "branch",
        "write-format",
        "output-spec-id",
        "validate-from-snapshot-id",
    }
    unknown = sorted(
        key for key in given if key.lower() not in known and not key.startswith(_SNAPSHOT_PROPERTY)
    )
    if unknown:
        logger.warning(
            "%s: nothing honours the write option %s; docs/spark_reference.md lists those that are",
            table.name,
            ", ".join(unknown),
        )


def _refusal(table: Table, option: str, text: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{table.name}: the write option {option}={text} is refused: {option} {why}",
        table=table.name,
    )
