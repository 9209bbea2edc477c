"""plog's assignors compared with Kafka's on hundreds of groups: same assignments, same bytes.

No broker takes part. A leader of plog's client library must compute what a Java leader would
compute, because the next leader may be either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from plog.client.assignors import Assignment, Subscription
from plog.client.assignors.assignor_registry import assignors_from
from tests.helpers.group.assignment_cases import Case, Group
from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools

GROUPS = 60
REBALANCES = 8


@pytest.fixture(scope="module")
def java(kafka_tools: KafkaTools) -> Iterator[JavaProcess]:
    with kafka_tools.start("programs.Assignments") as process:
        yield process


def line(case: Case) -> str:
    topics = ",".join(f"{topic}={count}" for topic, count in case.partition_counts.items())
    members = (
        f"{member}/{one.group_instance_id or '-'}/{one.encode().hex()}"
        for member, one in case.subscriptions.items()
    )
    return " ".join([case.assignor, topics, *members])


def java_assignments(java: JavaProcess, case: Case) -> dict[str, tuple[Assignment, bytes]]:
    """Return each member's assignment, and its subscription as Java encodes it."""
    count = len(java.lines)
    java.tell(line(case))
    response = java.wait_for("", start=count).string
    assert not response.startswith("failed"), response
    members = (word.split("/") for word in response.split(" "))
    return {
        member: (Assignment.decode(bytes.fromhex(assignment)), bytes.fromhex(encoded))
        for member, assignment, encoded in members
    }


def has_unsubscribed_topic(case: Case, shares: Mapping[str, Assignment]) -> bool:
    """Whether a member is assigned a topic to which it does not subscribe.

    Kafka's sticky assignors do this if a member missed a generation and now subscribes to fewer
    topics: it gets its old partitions back. Such assignments cannot be compared.
    """
    return any(
        one.topic not in case.subscriptions[member].topics
        for member, share in shares.items()
        for one in share.partitions
    )


def as_sets(shares: Mapping[str, Assignment]) -> dict[str, list[str]]:
    return {member: sorted(map(str, share.partitions)) for member, share in shares.items()}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_rebalance_ends_as_with_a_java_leader(java: JavaProcess, name: str) -> None:
    incomparable = 0
    for seed in range(GROUPS):
        group = Group(seed, name)
        for rebalance in range(REBALANCES):
            case = group.meet()
            [assignor] = assignors_from([name])
            ours = assignor.assign(case.partition_counts, case.subscriptions)
            theirs = java_assignments(java, case)
            shares = {member: share for member, (share, _) in theirs.items()}
            assert not has_unsubscribed_topic(case, ours)
            if has_unsubscribed_topic(case, shares):
                incomparable += 1
            else:
                assert as_sets(ours) == as_sets(shares), (
                    f"seed {seed}, rebalance {rebalance}: {case}"
                )
            for member, (_, encoded) in theirs.items():
                assert encoded == case.subscriptions[member].encode()
                assert Subscription.decode(encoded).topics == tuple(
                    sorted(case.subscriptions[member].topics)
                )
            group.divided(ours)
    assert incomparable < GROUPS * REBALANCES / 50
