"""After the faults: all replicas are in sync and equal, and no other logs remain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.records.batch import iter_batches
from plog.types import TopicPartition
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from plogd.log.file_names import parse_partition_dir_name
from plogd.log.log import Log
from tests.sim.checker import Anomaly

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.cluster.machine import Machine

_READ_BYTES = 1 << 20


def missing_in_sync(cluster: ClusterWorld) -> list[str]:
    """Return what is not in sync: replicas of partitions, and the topics that brokers know."""
    found = []
    topics = cluster.stored.topics()
    for machine in cluster.machines.values():
        process = machine.process
        known = (
            {}
            if process is None
            else {topic.name: topic.topic_id for topic in process.broker.cache.topics()}
        )
        if known != {name: topic.topic_id for name, topic in topics.items()}:
            found.append(f"{machine.name} knows the topics {sorted(known)}")
    for name, topic in topics.items():
        for number, replicas in topic.assignments.items():
            key = TopicPartition(name, number)
            isr = cluster.stored.isr(key, topic.topic_id)
            if sorted(isr) != sorted(replicas):
                found.append(f"{key}: isr {isr} of {replicas}")
                continue
            logs = [_log(cluster.machines[one], key) for one in replicas]
            ends = [
                None if log is None else (log.log_end_offset, log.high_watermark) for log in logs
            ]
            if None in ends or len({end for pair in ends for end in pair or ()}) > 1:
                found.append(f"{key}: ends and high watermarks {ends}")
    return found


def _log(machine: Machine, key: TopicPartition) -> Log | None:
    process = machine.process
    return None if process is None else process.broker.log_manager.get(key)


def check_replicas(cluster: ClusterWorld) -> None:
    """Raise Anomaly if replicas differ below the committed end, or unassigned logs remain."""
    for name, topic in cluster.stored.topics().items():
        for number, replicas in topic.assignments.items():
            _compare(cluster, TopicPartition(name, number), replicas)
    for machine in cluster.machines.values():
        _check_orphans(cluster, machine)


def _compare(cluster: ClusterWorld, key: TopicPartition, replicas: tuple[int, ...]) -> None:
    batches, starts = {}, {}
    for one in replicas:
        log = _log(cluster.machines[one], key)
        assert log is not None, "it is in sync"
        batches[one] = _batches(log)
        starts[one] = min(batches[one], default=log.log_end_offset)
    if key.topic == OFFSETS_TOPIC:
        return  # It is compacted, on each broker at another time.
    first, *others = replicas
    for other in others:
        # Retention deletes records at different times.
        start = max(starts[first], starts[other])
        one_has, other_has = (
            {offset: data for offset, data in batches[one].items() if offset >= start}
            for one in (first, other)
        )
        if one_has != other_has:
            offset = min(
                offset
                for offset in one_has.keys() | other_has.keys()
                if one_has.get(offset) != other_has.get(offset)
            )
            raise Anomaly(
                "replicas-differ",
                f"{key}: brokers {first} and {other} have different batches at {offset}",
            )


def _batches(log: Log) -> dict[int, bytes]:
    """Return the bytes of each batch, by base offset."""
    found, position = dict[int, bytes](), log.log_start_offset
    while position < log.log_end_offset:
        region = log.read(position, _READ_BYTES, end_offset=log.log_end_offset).region
        assert region is not None
        data = region.read()
        region.close()
        for start, header in iter_batches(data):
            found[header.base_offset] = data[start : start + header.size_bytes]
            position = header.next_offset
    return found


def _check_orphans(cluster: ClusterWorld, machine: Machine) -> None:
    for log_dir in machine.config.log_dirs:
        for name in machine.files.listdir(log_dir):
            parsed = parse_partition_dir_name(name)
            if parsed is None or parsed.state:
                continue
            if machine.node_id not in cluster.stored.replicas(parsed.topic_partition):
                raise Anomaly("orphan-log", f"{machine.name} has {log_dir}/{name}")
