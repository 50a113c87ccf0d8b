"""Spark sessions for lakehouse tables: configuration, and a JVM's environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pydantic import TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.spark.catalog.registration import register
from lakehouse.spark.jvm.class_archive import archive_options
from lakehouse.spark.jvm.jre import JavaRuntime, java_runtime, newest_java

CONFIG_VARIABLE = "LAKEHOUSE_SPARK_CONFIG"
"""Names Spark settings of every session of this process, a JSON object of strings."""
AUTHENTICATION_VARIABLE = "_SPARK_AUTH_SECRET"
"""Spark's daemons and executors take their secret from it, drivers only from a setting."""
_GIB = 1 << 30
_MIB = 1 << 20


def spark_config(
    *, master: str = "local[*]", config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Configuration of a session that reads and writes lakehouse tables.

    It also prepares this process's environment (`JAVA_HOME`, `PYSPARK_PYTHON`, and for a local
    master `SPARK_LOCAL_IP`), because Spark takes these from nowhere else; so call it before the
    first session of the process starts, for instance to configure dagster-pyspark's
    `LazyPySparkResource`.

    Args:
        master: where Spark runs. A local master listens on the loopback interface only.
        config: what to add or to replace; so does `LAKEHOUSE_SPARK_CONFIG`, a JSON object of
            strings, and `config` comes before it.

    Returns:
        Spark configuration keys with their values, `spark.master` among them.

    Raises:
        NotFoundError: no Java that this Spark runs on (17 or newer).
        InvalidInputError: `LAKEHOUSE_SPARK_CONFIG` cannot be read.
    """
    java = prepare_environment(local=master.startswith("local"))
    settings = {
        "spark.master": master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.memory": f"{driver_memory_bytes(_memory_limit()) // _MIB}m",
        "spark.driver.extraJavaOptions": (
            f"{archive_options(java)}"
            f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
        ),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # TIME columns, which Spark has behind a switch
        "spark.sql.timeType.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
        }
    settings |= _configured(os.environ.get(CONFIG_VARIABLE) or "{}") | dict(config or {})
    secret = os.environ.get(AUTHENTICATION_VARIABLE)
    if secret and settings.get("spark.authenticate") == "true":
        settings.setdefault("spark.authenticate.secret", secret)
    return settings


def build_session(
    app_name: str,
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    catalogs: Mapping[str, str | Lakehouse] | None = None,
) -> SparkSession:
    """Start (or get) a Spark session that reads and writes lakehouse tables.

    Args:
        app_name: shown in Spark's UI and logs.
        master: where Spark runs.
        config: Spark configuration to add or to replace.
        catalogs: lakehouses by the names that they have in SQL, such as `{"lake":
            "file:///data/warehouse"}`: opened ones, or what `load_catalog` opens.

    Raises:
        NotFoundError: no Java that this Spark runs on (17 or newer).
        InvalidInputError: a catalog's name or URI that cannot be used, or
            `LAKEHOUSE_SPARK_CONFIG`.
    """
    builder = SparkSession.builder.appName(app_name)
    for key, value in spark_config(master=master, config=config).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for name, lake in (catalogs or {}).items():
        register(spark, load_catalog(lake) if isinstance(lake, str) else lake, name)
    return spark


def prepare_environment(*, local: bool) -> JavaRuntime:
    """Set what Spark reads from the environment alone, and say which Java it is.

    `PYSPARK_PYTHON` becomes this interpreter unless the user chose one: workers must unpickle what
    this process pickles.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java = java_runtime(newest=newest_java(pyspark.__version__))
    os.environ["JAVA_HOME"] = str(java.home)
    if sys.flags.utf8_mode and os.environ.get("LC_ALL") in {"C", "POSIX"}:
        # there Python has UTF-8 for the names of files, and Java would have ASCII
        os.environ["LC_ALL"] = "C.UTF-8"
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return java


def driver_memory_bytes(available: int) -> int:
    """A quarter of the memory, 1 to 8 GiB: Python workers and Arrow want the rest."""
    return max(1 * _GIB, min(8 * _GIB, available // 4))


def _configured(text: str) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(text)
    except ValidationError:  # shows what it was given, which may be a secret
        raise InvalidInputError(
            f"{CONFIG_VARIABLE} is a JSON object of strings, such as "
            '{"spark.executor.memory": "4g"}'
        ) from None


def _memory_limit() -> int:
    """Bytes this process may use: memory of the machine, or of its control group if less."""
    try:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):
        limit = 4 * _GIB
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = min(limit, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return limit
