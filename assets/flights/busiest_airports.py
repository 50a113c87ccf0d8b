"""An asset that is a DataFrame program: clean flights in, the busiest airports out."""

from __future__ import annotations

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql.functions import avg, col, count, count_distinct, desc


@dg.asset(
    key_prefix="marts",
    group_name="marts",
    ins={"flights": dg.AssetIn(["clean", "flights"])},
    kinds={"iceberg", "spark"},
    owners=["team:flights"],
    tags={"domain": "aviation"},
    metadata={
        "lakehouse/why": "origin",  # a row is of the flights with its origin
        "dagster/column_schema": dg.TableSchema(
            [
                dg.TableColumn("flights", description="Flights that left."),
                dg.TableColumn("destinations", description="Airports that they flew to."),
                dg.TableColumn(
                    "departure_delay_avg_minutes",
                    description="Mean minutes late at departure, early ones counted negative.",
                ),
            ]
        ),
    },
    pool="table_marts_busiest_airports",
    automation_condition=dg.AutomationCondition.eager(),
)
def busiest_airports(flights: DataFrame) -> DataFrame:
    """Flights, destinations and mean delay by airport of departure, the busiest first."""
    return (
        flights.where(col("status") == "flown")
        .groupBy("origin")
        .agg(
            count("*").alias("flights"),
            count_distinct("dest").alias("destinations"),
            avg("departure_delay_minutes").alias("departure_delay_avg_minutes"),
        )
        .orderBy(desc("flights"))
    )
