"""Spark reads and writes tables on S3 beside plain files on `s3a://`, in one session.

`make cluster-jars .tools/bin/versitygw`, then `python -m benchmarks.spark_s3 [--rows N] [--master
MASTER]`, where MASTER is `local[2]`, `local-cluster[2,1,1024]`, the URL of a cluster on this
machine, or `standalone`: a master and two workers, which are started and ended here. The S3 server
is versitygw on loopback; both sides pay for it alike.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_support import Times, events, interleaved, report
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.spark import build_session
from tests.cluster.loopback import loopback_spark
from tests.cluster.ports import free_port, listens

ROOT = Path(__file__).resolve().parent.parent
BUCKET = "bench"
TARGETS = {"write by day and bucket": 1.0, "aggregate": 1.05, "filtered columns": 1.05}
RESULTS = {
    "local": "spark_s3",
    "local-cluster": "spark_s3_local_cluster",
    "standalone": "spark_s3_standalone",
}
Cases = dict[str, dict[str, Times]]
NATIVE_BUCKET = "pmod(hash(-1693959553, user_id) & 2147483647, 4)"


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Versitygw over a folder, with one bucket: properties that reach it."""
    port, key, secret = free_port(), "bench", secrets.token_hex(16)
    (folder / BUCKET).mkdir(parents=True)
    server = subprocess.Popen(
        [
            str(ROOT / ".tools/bin/versitygw"), "--port", f"127.0.0.1:{port}", "--quiet", "posix",
            str(folder),
        ],
        env=os.environ | {"ROOT_ACCESS_KEY_ID": key, "ROOT_SECRET_ACCESS_KEY": secret},
    )  # fmt: skip
    try:
        while not listens(port):
            time.sleep(0.1)
        yield {
            "s3.endpoint": f"http://127.0.0.1:{port}",
            "s3.region": "us-east-1",
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
        }
    finally:
        server.kill()
        server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="spark-s3-"))
    jars = sorted(map(str, (ROOT / ".tools/jars").glob("*.jar")))
    if not jars:
        raise SystemExit("S3A's JARs are not there: make cluster-jars")
    try:
        standalone = arguments.master == "standalone"
        cluster = loopback_spark(root / "spark") if standalone else nullcontext(arguments.master)
        with s3_server(root / "s3") as properties, cluster as master:
            return measured(arguments, master, root, jars, properties)
    finally:
        shutil.rmtree(root)


def measured(
    arguments: argparse.Namespace,
    master: str,
    root: Path,
    jars: list[str],
    properties: dict[str, str],
) -> int:
    spark = session(master, jars)
    try:
        events(spark, arguments.rows, days=arguments.days, slices=4).write.parquet(f"{root}/source")
        source = spark.read.parquet(f"{root}/source")
        lake = load_catalog(
            f"sqlite:///{root}/catalog.db", warehouse=f"s3://{BUCKET}/warehouse", **properties
        )
        written, plain = writing(lake, source, arguments.repeat)
        frame = lake.load_table("b.t0").scan().to_spark(spark)
        assert frame.count() == plain.count() == arguments.rows
        cases = written | reading(frame, plain, arguments.repeat)
        met = report(
            RESULTS.get(arguments.master.partition("[")[0], "spark_s3_cluster"),
            f"Spark on S3, {arguments.master}",
            cases,
            "lakehouse",
            TARGETS,
            rows=arguments.rows,
            days=arguments.days,
        )
        return 0 if met else 1
    finally:
        spark.stop()


def session(master: str, jars: list[str]) -> SparkSession:
    return build_session(
        "spark_s3",
        master=master,
        config={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # by path: 660 MB would go to each executor as spark.jars
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.executor.extraClassPath": ":".join(jars),
            "spark.sql.shuffle.partitions": "8",
            "spark.executor.memory": "1g",
        },
    )


def writing(lake: Lakehouse, source: DataFrame, repeat: int) -> tuple[Cases, DataFrame]:
    """The case, and the plain files that were written last."""
    numbers = itertools.count()

    def ours() -> None:
        lake.create_table(
            f"b.t{next(numbers)}",
            source.schema,
            partition_by=("day(event_ts)", "bucket(4, user_id)"),
        ).append(source)

    def theirs() -> None:
        keyed = source.selectExpr("*", "date(event_ts) AS day", f"{NATIVE_BUCKET} AS bucket")
        keyed.repartition("day", "bucket").write.option("compression", "zstd").partitionBy(
            "day", "bucket"
        ).parquet(f"s3a://{BUCKET}/plain{next(numbers)}")

    ours()  # t0: the lakehouse tells Hadoop where the bucket is
    case = interleaved({"lakehouse": ours, "repartition + partitionBy": theirs}, repeat)
    plain = source.sparkSession.read.parquet(f"s3a://{BUCKET}/plain{next(numbers) - 1}")
    return {"write by day and bucket": case}, plain


def reading(frame: DataFrame, plain: DataFrame, repeat: int) -> Cases:
    def aggregated(of: DataFrame) -> Callable[[], object]:
        return lambda: of.groupBy("kind").agg({"amount": "sum", "token": "max"}).collect()

    def filtered(of: DataFrame) -> Callable[[], object]:
        return lambda: of.where("amount > 500000").agg({"name": "max", "id": "sum"}).collect()

    return {
        name: interleaved({"lakehouse": query(frame), "spark.read.parquet": query(plain)}, repeat)
        for name, query in (("aggregate", aggregated), ("filtered columns", filtered))
    }


if __name__ == "__main__":
    raise SystemExit(main())
