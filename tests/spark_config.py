"""How sessions of Spark are set up where many small statements run once each."""

from __future__ import annotations

BRIEF = {
    "spark.ui.enabled": "false",
    # compiling such statements well costs more than it saves; but what has been compiled is kept
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
    # by default 4 MB for each task's description, and as much as 64 MB for each sort or hash table
    "spark.broadcast.blockSize": "128k",
    "spark.buffer.pageSize": "1m",
}
