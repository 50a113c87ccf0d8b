"""The settings `spark.sql.iceberg.*` of a session: honoured, refused, or warned of."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError, InvalidPropertyError
from lakehouse.spec.table_properties import TableProperties

logger = logging.getLogger(__name__)

PREFIX = "spark.sql.iceberg."
MERGE_SCHEMA = f"{PREFIX}merge-schema"
AS_PROPERTIES: Mapping[str, str] = {
    f"{PREFIX}compression-codec": "write.parquet.compression-codec",
    f"{PREFIX}compression-level": "write.parquet.compression-level",
    f"{PREFIX}distribution-mode": "write.distribution-mode",
    f"{PREFIX}shred-variants": "write.parquet.shred-variants",
    f"{PREFIX}variant-inference-buffer-size": "write.parquet.variant-inference-buffer-size",
    f"{PREFIX}advisory-partition-size": "write.spark.advisory-partition-size-bytes",
}
"""Settings that stand for a property of every table that the session writes to."""

SWITCHES = frozenset(
    {
        MERGE_SCHEMA,
        f"{PREFIX}aggregate-push-down.enabled",
        f"{PREFIX}planning.preserve-data-grouping",
    }
)
"""`true` or `false`; read where they matter."""

WITHOUT_EFFECT = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "vectorization.enabled",
        "read.vector.enabled",
        "parquet.reader-type",
        "check-nullability",
        "check-ordering",
        "data-planning-mode",
        "delete-planning-mode",
        "locality.enabled",
        "executor-cache.enabled",
        "executor-cache.delete-files.enabled",
        "executor-cache.timeout",
        "executor-cache.max-entry-size",
        "executor-cache.max-total-size",
        "executor-cache.locality.enabled",
        "report-column-stats",
    )
)
"""Rows and files are right with any value."""


def check_settings(given: Mapping[str, str]) -> None:
    """Look at the settings that a session has; a warning names those that nothing honours.

    Raises:
        InvalidInputError: a value that a setting cannot have.
    """
    for name, text in sorted(given.items()):
        if name in SWITCHES and text.lower() not in ("true", "false"):
            raise _refusal(name, text, "it is true or false")
        if name in AS_PROPERTIES:
            try:
                TableProperties({AS_PROPERTIES[name]: text}).validate()
            except InvalidPropertyError as error:
                raise _refusal(name, text, error.message) from error
    unknown = sorted(given.keys() - AS_PROPERTIES.keys() - SWITCHES - WITHOUT_EFFECT)
    if unknown:
        logger.warning(
            "nothing honours the setting %s; docs/spark_reference.md lists those that are",
            ", ".join(unknown),
        )


def properties_of_session(spark: SparkSession) -> dict[str, str]:
    """Table properties, as the session's settings have them."""
    texts = {name: spark.conf.get(setting, None) for setting, name in AS_PROPERTIES.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _refusal(name: str, text: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"the setting {name}={text} is refused: {why}. Set another value, or RESET `{name}`"
    )
