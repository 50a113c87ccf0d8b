"""The options of Iceberg's readers in Spark that say no point in time.

They are honoured, refused, or warned of.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lakehouse.errors import InvalidInputError

logger = logging.getLogger(__name__)

_OTHER_ROWS = frozenset({"start-timestamp", "end-timestamp", "scan-task-set-id"})
"""Without them a reader would get other rows than it asks for."""

_SPLITS: Mapping[str, tuple[str, int]] = {
    "split-size": ("target_size_bytes", 1),
    "lookback": ("lookback", 1),
    "file-open-cost": ("open_file_cost_bytes", 0),
}
"""Options that stand for a property of the table in this read: of `SplitOptions`, and the least."""

_BY_SPARK = frozenset({"versionasof", "timestampasof"})
_WITHOUT_EFFECT = frozenset(
    {
        "vectorization-enabled",
        "read.vector.enabled",
        "batch-size",
        "locality",
        "aggregate-push-down-enabled",
    }
)
_LONG_MAX = 2**63 - 1


def read_options(table: str, given: Mapping[str, str]) -> dict[str, int]:
    """What a read says of splits, by the attributes of `SplitOptions`; a warning names the rest.

    Raises:
        InvalidInputError: an option that chooses rows, or a size that is none.
    """
    options = {name.lower(): text for name, text in given.items()}
    rest = sorted(options.keys() - _SPLITS.keys() - _BY_SPARK - _WITHOUT_EFFECT)
    refused = [name for name in rest if name in _OTHER_ROWS]
    if refused:
        raise InvalidInputError(
            f"{table}: the read option {', '.join(refused)} is refused: rows that came and went "
            "between two times are in the view of CALL system.create_changelog_view",
            table=table,
        )
    if rest:
        logger.warning(
            "%s: nothing honours the read option %s; docs/spark_reference.md lists those that are",
            table,
            ", ".join(rest),
        )
    return {
        attribute: _number(table, name, options[name], least)
        for name, (attribute, least) in _SPLITS.items()
        if name in options
    }


def _number(table: str, name: str, text: str, least: int) -> int:
    if text.strip().isdecimal() and least <= int(text) <= _LONG_MAX:
        return int(text)
    raise InvalidInputError(
        f"{table}: the read option {name}={text} is refused: it is a whole number from {least}",
        table=table,
    )
