"""Scan reports through Kafka, against the mock cluster that librdkafka brings."""

from __future__ import annotations

import json

import pytest

from lakehouse.scan.reports.listeners import ScanReport
from lakehouse.scan.reports.plan_report import FileCounts, PlanReport

confluent_kafka = pytest.importorskip(
    "confluent_kafka", reason="needs the extra: pip install 'pylakehouse[kafka]'"
)


@pytest.fixture
def mock_cluster():
    """A mock broker lives as long as its client, whose metadata tells the address."""
    keeper = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused"})
    brokers = keeper.list_topics(timeout=20).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    keeper.flush(1)


def report(number):
    plan = PlanReport(
        snapshot_id=8124,
        filter=f"n = {number}",
        projected_columns=("n",),
        data_files=FileCounts(total=9, planned=2),
    )
    return ScanReport(
        table="raw.events", engine="arrow", timestamp_ms=1_767_225_600_000 + number, plan=plan
    )


def test_every_report_is_a_message(mock_cluster):
    from lakehouse.scan.reports.kafka_listener import KafkaListener

    listener = KafkaListener("scans", {"bootstrap.servers": mock_cluster})
    for number in range(20):
        listener.scan_planned(report(number))
    assert listener.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": mock_cluster, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["scans"])
    messages = []
    for _ in range(120):
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            messages.append(message)
        if len(messages) == 20:
            break
    consumer.close()
    assert [message.key() for message in messages] == [b"raw.events"] * 20
    assert [json.loads(message.value()) for message in messages] == [
        report(number).to_dict() for number in range(20)
    ]
    assert messages[3].timestamp()[1] == 1_767_225_600_003


def test_what_cannot_be_delivered_is_logged(caplog):
    from lakehouse.scan.reports.kafka_listener import KafkaListener

    listener = KafkaListener(
        "scans",
        {
            "bootstrap.servers": "127.0.0.1:1",
            "message.timeout.ms": 300,
            "enable.idempotence": False,
            "log_level": 0,
        },
    )
    listener.scan_planned(report(1))
    listener.close(10)
    assert "not delivered to Kafka topic scans" in caplog.text
