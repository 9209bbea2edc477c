"""The sender goes to the leaders that Produce responses name (KIP-951)."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse
from tests.unit.client.producer.sender_site import answer_with, ready


@pytest.mark.parametrize("epoch", [1, 0])
def test_leader_that_the_response_names_gets_the_batch_without_new_metadata(epoch: int) -> None:
    """A leader of an epoch that is known already is obsolete."""
    site = ready(retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)
    [broker] = site.cluster.metadata.brokers
    answers = [True]
    answer_with(
        site,
        lambda data: (
            PartitionProduceResponse(
                index=0,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                base_offset=-1,
                current_leader=LeaderIdAndEpoch(leader_id=broker, leader_epoch=epoch),
            )
            if answers and answers.pop()
            else None
        ),
    )
    [handle] = site.sent(b"v")
    site.sim.advance(1_000)
    is_newer = epoch > 0
    # The new leader does not need the time of the backoff.
    assert handle.done() == is_newer
    if is_newer:
        names = [type(request).__name__ for request in site.sim.requests]
        assert "MetadataRequest" not in names
    site.flush()
    assert handle.metadata().offset == 1
