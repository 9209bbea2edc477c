"""The metrics of the controller, with the names that the usual JMX exporter rules derive."""

from __future__ import annotations

from plogd.controller.controller import Controller
from plogd.metrics import Counter, Registry


def register_controller_gauges(metrics: Registry, controller: Controller) -> None:
    """Register the gauges; they are evaluated at each scrape.

    As in Kafka, a broker that is not the controller reports zeros.
    """
    prefix = "kafka_controller_kafkacontroller_"
    # Monitoring for Kafka alerts unless exactly one broker of the cluster reports 1.
    metrics.gauge(
        f"{prefix}activecontrollercount",
        "1 if this broker is the active controller, otherwise 0.",
        lambda: controller.is_active,
    )
    metrics.gauge(
        f"{prefix}offlinepartitionscount",
        "Number of partitions without a leader in the cluster.",
        lambda: controller.partition_counts.leaderless,
    )
    metrics.gauge(
        f"{prefix}preferredreplicaimbalancecount",
        "Number of partitions in the cluster that their preferred leader does not lead.",
        lambda: controller.partition_counts.not_preferred,
    )


def count_unclean_elections(metrics: Registry) -> Counter:
    """Register and return the counter of unclean elections."""
    return metrics.counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Leaders that this broker, as the controller, has elected although they were not in sync.",
    )
