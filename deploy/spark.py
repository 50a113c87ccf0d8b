"""Runs a Spark standalone daemon: `python -m deploy.spark master`, or `worker MASTER_URL`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pyspark

MAIN = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def command(arguments: list[str]) -> list[str]:
    """The `spark-class` call for `["master"]` or `["worker", MASTER_URL]`.

    Raises:
        SystemExit: usage, when the arguments are neither.
    """
    if (
        not arguments
        or arguments[0] not in MAIN
        or (arguments[0] == "worker") != (len(arguments) == 2)
    ):
        raise SystemExit(__doc__)
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    return [spark_class, MAIN[arguments[0]], "--host", socket.gethostname(), *arguments[1:]]


if __name__ == "__main__":
    call = command(sys.argv[1:])
    os.execv(call[0], call)  # noqa: S606 - the container's main process is Spark itself
