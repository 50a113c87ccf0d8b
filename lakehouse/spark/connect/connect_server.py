"""A Spark Connect server whose clients have a lakehouse as a catalog."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse
from lakehouse.spark.catalog.registration import register, share
from lakehouse.spark.spark_session import build_session

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a variable of Spark's


class ConnectServer:
    """A server in Spark's driver, beside the Python process that answers for its catalog.

    Attributes:
        spark: the server's own session; each client has one of its own.
        url: what clients connect to, such as `sc://127.0.0.1:15002`.
    """

    def __init__(self, spark: SparkSession, host: str, port: int) -> None:
        self.spark = spark
        self.url = f"sc://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self) -> None:
        """End it: statements that run are interrupted, and commit nothing."""
        service = _service(self.spark)
        default = getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")()
        service.stop(*default)
        self.spark.stop()

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start_connect_server(
    lake: Lakehouse,
    *,
    name: str = "lake",
    host: str = "127.0.0.1",
    port: int = 15002,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
) -> ConnectServer:
    """Serve a lakehouse to clients of Spark Connect: whatever `spark.sql` can do in this process.

    A client needs PySpark alone (`pip install pyspark-client`), not this package, and may be of
    another version: `SparkSession.builder.remote("sc://127.0.0.1:15002").getOrCreate()`.

    Args:
        lake: the lakehouse.
        name: of the catalog in SQL.
        host: interface to listen on. Any but the loopback interface needs a token in the variable
            `SPARK_CONNECT_AUTHENTICATE_TOKEN`; clients send it over TLS alone, so a proxy that
            ends TLS stands before such a server.
        port: 1 to 65535.
        master: where Spark runs.
        config: Spark configuration to add or to replace.

    Raises:
        InvalidInputError: a name that no catalog can have, an interface that would be open to
            everybody, a port that is taken.
        NotFoundError: no Java 17 or newer.
    """
    if not _is_loopback(host) and not os.environ.get(_TOKEN):
        raise InvalidInputError(
            f"whoever reaches {host}:{port} could read and write {lake!r}: set {_TOKEN}, or listen "
            "on 127.0.0.1"
        )
    if not 0 < port < 1 << 16:
        raise InvalidInputError(f"port {port} is none: give one from 1 to 65535")
    binding = {
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
    }
    spark = build_session("lakehouse", master=master, config={**dict(config or {}), **binding})
    try:
        register(spark, lake, name)
        share(spark, name)
        _service(spark).start(spark.sparkContext._jsc.sc())
    except Py4JJavaError as error:
        spark.stop()
        if "BindException" in str(error.java_exception):
            raise InvalidInputError(f"{host}:{port} is taken: give another port") from error
        raise
    except InvalidInputError:
        spark.stop()
        raise
    return ConnectServer(spark, host, port)


def _service(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm.org.apache.spark.sql.connect.service.SparkConnectService


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
