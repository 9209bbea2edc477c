"""The gauge of the controller, with the name that the usual JMX exporter rules derive."""

from __future__ import annotations

from plogd.controller.controller import Controller
from plogd.metrics import Registry


def register_controller_gauges(metrics: Registry, controller: Controller) -> None:
    """Register the gauge; it is evaluated at each scrape."""
    # Monitoring for Kafka alerts unless exactly one broker of the cluster reports 1.
    metrics.gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 if this broker is the active controller, otherwise 0.",
        lambda: controller.is_active,
    )
