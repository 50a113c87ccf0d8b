"""Scan reports to a Kafka topic. Needs the extra `kafka` (confluent-kafka)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaError, Message, Producer

from lakehouse.scan.reports.listeners import ScanReport

_LOG = logging.getLogger(__name__)


class KafkaListener:
    """Sends one message a plan: key the table's name, value `ScanReport.to_dict()` as JSON.

    Messages are sent in the background, in order of each table. What cannot be delivered is logged,
    not raised.

    Args:
        topic: where to.
        config: librdkafka's configuration, `bootstrap.servers` among it.

    Raises:
        KafkaException: librdkafka refuses the configuration.
    """

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        self._topic = topic
        self._producer = Producer({"enable.idempotence": True, **config})

    def scan_planned(self, report: ScanReport) -> None:
        """Send the report to Kafka; raises BufferError if the queue is full: the caller logs it."""
        value = orjson.dumps(report.to_dict())
        self._producer.poll(0)
        self._producer.produce(
            self._topic,
            value,
            key=report.table.encode(),
            timestamp=report.timestamp_ms,
            on_delivery=_delivered,
        )

    def flush(self, timeout_seconds: float = 10.0) -> int:
        """Wait for deliveries; returns how many messages are still waiting."""
        return int(self._producer.flush(timeout_seconds))

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Flush; says in the log what was not delivered in time."""
        left = self.flush(timeout_seconds)
        if left:
            _LOG.warning(
                "%d scan reports were not delivered to Kafka topic %s within %s s",
                left,
                self._topic,
                timeout_seconds,
            )


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        _LOG.warning(
            "a scan report was not delivered to Kafka topic %s: %s", message.topic(), error.str()
        )
