"""A daemon of standalone Spark: `deploy.spark master OPTIONS`, `worker MASTER_URL OPTIONS`.

The options are Spark's own (`--port`, `--webui-port`, `--cores`, `--memory`, `--work-dir`). With a
secret in `_SPARK_AUTH_SECRET`, which Spark reads by itself, the daemon talks only to those who have
it, and encrypts what it says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from lakehouse.spark.spark_session import prepare_environment

MAIN = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def command(arguments: list[str]) -> list[str]:
    """The `spark-class` call for a daemon's name and options.

    Raises:
        SystemExit: usage, when there is no such daemon.
    """
    if not arguments or arguments[0] not in MAIN:
        raise SystemExit(__doc__)
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    return [spark_class, MAIN[arguments[0]], *arguments[1:]]


def daemon_options(environment: Mapping[str, str]) -> str:
    """Java options of a daemon, after those that somebody gave; its UI answers Prometheus."""
    options = environment.get("SPARK_DAEMON_JAVA_OPTS", "").split()
    for daemon in MAIN:
        sink = f"-Dspark.metrics.conf.{daemon}.sink.prometheusServlet"
        options += [
            f"{sink}.class=org.apache.spark.metrics.sink.PrometheusServlet",
            f"{sink}.path=/metrics/prometheus",
        ]
    if environment.get("_SPARK_AUTH_SECRET"):
        options += ["-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true"]
    return " ".join(options)


if __name__ == "__main__":
    prepare_environment(local=False)
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = daemon_options(os.environ)
    call = command(sys.argv[1:])
    os.execv(call[0], call)  # noqa: S606 - the container's main process is Spark itself
