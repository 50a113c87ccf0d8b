"""The options of Iceberg's readers in Spark that say no point in time: refused, or warned of."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakehouse.errors import InvalidInputError

logger = logging.getLogger(__name__)

_OTHER_ROWS = frozenset({"start-timestamp", "end-timestamp"})
"""Without them a reader would get other rows than it asks for."""

_BY_SPARK = frozenset({"versionasof", "timestampasof"})
_WITHOUT_EFFECT = frozenset({"vectorization-enabled", "batch-size", "locality"})


def check_read_options(table: str, given: Iterable[str]) -> None:
    """Warn of options of a read that nothing honours.

    Raises:
        InvalidInputError: an option that chooses rows.
    """
    rest = sorted({name.lower() for name in given} - _BY_SPARK - _WITHOUT_EFFECT)
    refused = [name for name in rest if name in _OTHER_ROWS]
    if refused:
        raise InvalidInputError(
            f"{table}: the read option {', '.join(refused)} is refused: rows that came and went "
            "between two times are in the view of CALL system.create_changelog_view",
            table=table,
        )
    if rest:
        logger.warning(
            "%s: nothing honours the read option %s; docs/spark.md lists those that are",
            table,
            ", ".join(rest),
        )
