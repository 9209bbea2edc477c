"""Batches of metadata records are equal whether they are built in one step or in slices."""

from __future__ import annotations

import pytest

from plog.wire.internal.metadata_records import MetadataRecord, PartitionRecord, TopicRecord
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata.record_batch import batch_in_slices, batch_of
from plogd.ports import spawn
from tests.helpers.sim.sim_ports import SimPorts, settled
from tests.helpers.sim.sim_time import START_MS

TOPIC_ID = b"t" * 16


@pytest.mark.parametrize("count", [1, SLICE, 10_000])
def test_batch_built_in_slices_equals_the_one_built_in_one_step(count: int) -> None:
    ports = SimPorts()
    records: list[MetadataRecord] = [TopicRecord(name="t", topic_id=TOPIC_ID)]
    records += [
        PartitionRecord(partition_id=number, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1)
        for number in range(count - 1)
    ]
    making = spawn(batch_in_slices(records, START_MS, FairQueue(ports.timers)))
    assert settled(ports, making) == batch_of(records, START_MS)
