"""``plog broker may-stop``: whether partitions would be affected if a broker stopped now.

A partition is affected if its leader could not be replaced, or if it would have fewer in-sync
replicas than ``min.insync.replicas``, so that producers with acks=all would fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from plog.cli.options import UsageError
from plog.cli.output import Table, show
from plog.cli.rebalance.cluster_state import describe_partitions
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.values import ConfigResource, PartitionDescription
from plog.client.network.cluster import Cluster
from plog.types import TopicPartition

_MIN_ISR = "min.insync.replicas"


class Risk(NamedTuple):
    """What would happen to a partition if a broker stopped."""

    partition: TopicPartition
    in_sync: int
    """The number of in-sync replicas on other brokers."""
    min_isr: int

    @property
    def text(self) -> str:
        """The reason not to stop the broker."""
        if not self.in_sync:
            return "would have no leader: the broker has the only in-sync replica"
        replicas = "1 in-sync replica" if self.in_sync == 1 else f"{self.in_sync} in-sync replicas"
        return f"would have {replicas}, and {_MIN_ISR}={self.min_isr}"


async def may_stop(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the partitions that would be affected; return 1 if there are any. Raises UsageError."""
    broker: int = arguments.broker
    partitions = await describe_partitions(cluster)
    hosted = {one: each for one, each in partitions.items() if broker in each.replicas}
    available = (await BrokerAdmin(cluster).describe_cluster()).brokers
    if broker not in available and not hosted:
        known = ", ".join(map(str, sorted(available)))
        raise UsageError(f"unknown broker {broker}: the available brokers are {known}")
    found = risks(broker, hosted, await _min_isrs(cluster, {one.topic for one in hosted}))
    if broker not in available:
        last = f"broker {broker} is not available: it has stopped already"
    elif found:
        last = (
            f"broker {broker} must not stop: {len(found)} of its {len(hosted)} partitions would be"
            " affected"
        )
    else:
        last = f"broker {broker} may stop: none of its {len(hosted)} partitions would be affected"
    show(
        lambda: [*(f"{each.partition}: {each.text}" for each in found), last],
        lambda: [
            Table(
                ("TOPIC", "PARTITION", f"IF BROKER {broker} STOPS"),
                [(*each.partition, each.text) for each in found],
            )
        ],
        lambda: {
            "broker": broker,
            "may_stop": not found,
            "partitions": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "other_in_sync_replicas": each.in_sync,
                    "min_insync_replicas": each.min_isr,
                }
                for each in found
            ],
        },
        as_json=arguments.json,
    )
    return 1 if found else 0


def risks(
    broker: int,
    partitions: Mapping[TopicPartition, PartitionDescription],
    min_isrs: Mapping[str, int],
) -> list[Risk]:
    """Return the partitions that would be affected if `broker` stopped."""
    found = []
    for partition, described in sorted(partitions.items()):
        # A broker that is not in sync is neither the leader, nor does it count for the minimum.
        if broker not in described.isr:
            continue
        in_sync = len(described.isr) - 1
        # As in Kafka's Partition.effectiveMinIsr, a partition with fewer replicas than the setting
        # needs all of them.
        min_isr = min(min_isrs[partition.topic], len(described.replicas))
        if in_sync < min_isr:
            found.append(Risk(partition, in_sync, min_isr))
    return found


async def _min_isrs(cluster: Cluster, topics: set[str]) -> dict[str, int]:
    resources = [ConfigResource.topic(topic) for topic in sorted(topics)]
    described = await ConfigAdmin(cluster).describe_configs(resources, names=[_MIN_ISR])
    return {
        resource.name: int(configs[_MIN_ISR].value or 1)
        for resource, configs in described.raise_first().items()
    }
