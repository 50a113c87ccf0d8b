"""Procedures: `CALL lake.system.rewrite_data_files(table => 'raw.events')`.

Names, arguments and columns are those of Iceberg's procedures on Spark, so that scripts carry over;
`health` and `advise` are this project's own, and those that stand for statements which Spark's
grammar does not have (`add_partition_field`, `create_branch`...).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.spark.catalog import (
    layout_procedures,
    maintenance_procedures,
    ref_procedures,
    snapshot_procedures,
    takeover_procedures,
)
from lakehouse.spark.catalog.procedure import Procedure

PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        *snapshot_procedures.PROCEDURES,
        *ref_procedures.PROCEDURES,
        *layout_procedures.PROCEDURES,
        *maintenance_procedures.PROCEDURES,
        *takeover_procedures.PROCEDURES,
    )
}
