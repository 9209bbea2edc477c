"""AlterPartition (key 56): a leader changes its in-sync replicas. Only the controller handles it.

Serves versions 2-3; 3 contains broker epochs (KIP-903). controller/cluster/leader_requests.py
contains the rules. Source: Kafka 3.9 KafkaController.alterPartitions; KIP-497.
"""

from __future__ import annotations

from plog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later, spawn


def handle_alter_partition(
    request: AlterPartitionRequest, _context: RequestContext, broker: Broker
) -> Later[AlterPartitionResponse]:
    """Change the ISR of partitions; each has its own result. Raises NotController."""
    return spawn(broker.controller.cluster.requests.alter_partitions(request))
