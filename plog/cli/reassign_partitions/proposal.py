"""``plog reassign-partitions --generate``: propose new replicas of topics on a list of brokers.

The proposal leaves as many replicas as possible where they are. Kafka's tool starts at a random
broker, and moves almost all replicas.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from plog.balance.leader_plan import Leaders
from plog.balance.placement import Placement
from plog.balance.replica_plan import balance_replicas, leave_brokers
from plog.cli.options import UsageError
from plog.cli.output import print_json
from plog.cli.reassign_partitions.available_brokers import available_racks
from plog.cli.reassign_partitions.log_dir_moves import current_log_dirs
from plog.cli.reassign_partitions.reassignment_file import as_document, as_json
from plog.cli.reassign_partitions.verification import current_replicas
from plog.client.network.cluster import Cluster
from plog.types import TopicPartition


async def generate(cluster: Cluster, topics: Sequence[str], arguments: argparse.Namespace) -> int:
    """Print the current and the proposed replicas of `topics`."""
    current = await current_replicas(cluster, set(topics))
    missing = sorted(set(topics) - {partition.topic for partition in current})
    if missing:
        raise UsageError(f"Topic {missing[0]} not found.")
    racks = await available_racks(
        cluster, arguments.broker_list, disable_rack_aware=arguments.disable_rack_aware
    )
    proposed = proposed_replicas(racks, current)
    log_dirs = await current_log_dirs(cluster, current)
    if arguments.json:
        current_document = as_document(current, log_dirs)
        print_json({"current": current_document, "proposed": as_document(proposed)})
        return 0
    print(f"Current partition replica assignment\n{as_json(current, log_dirs)}\n")
    print(f"Proposed partition reassignment configuration\n{as_json(proposed)}")
    return 0


def proposed_replicas(
    racks: Mapping[int, str | None], current: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, list[int]]:
    """Return new replicas on the brokers in `racks`. Raises NotEnoughBrokers."""
    placement = Placement(racks, current, {})
    others = {broker for replicas in current.values() for broker in replicas} - set(racks)
    leave_brokers(placement, others)
    balance_replicas(placement)
    leaders = Leaders(placement.brokers, placement.replicas)
    leaders.balance(lambda partition, broker: True)
    return leaders.replicas
