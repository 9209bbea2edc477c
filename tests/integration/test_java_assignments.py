"""Our assignors beside Kafka's own, on hundreds of groups: the same shares, the same bytes.

No broker takes part. A leader of ours has to give what a Java leader would have given, since the
next one may be either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from plog.client.assignors import Assignment, Subscription
from plog.client.assignors.assignor_registry import assignors_from
from tests.helpers.assignment_cases import Case, Group
from tests.helpers.java_process import JavaProcess
from tests.helpers.kafka_tools import KafkaTools

GROUPS = 60
MEETINGS = 8


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


def ask(java: JavaProcess, case: Case) -> dict[str, tuple[Assignment, bytes]]:
    """The assignment of each member, and its subscription as Java writes it."""
    count = len(java.lines)
    java.tell(line(case))
    answer = java.wait_for("", start=count).string
    assert not answer.startswith("failed"), answer
    members = (word.split("/") for word in answer.split(" "))
    return {
        member: (Assignment.decode(bytes.fromhex(assignment)), bytes.fromhex(again))
        for member, assignment, again in members
    }


def has_unwanted(case: Case, shares: Mapping[str, Assignment]) -> bool:
    """Whether somebody gets a topic it does not want.

    Kafka's sticky assignors do that to a member that has missed a generation and subscribes to less
    than before: it gets back what it had. Such a share is none to compare with.
    """
    return any(
        one.topic not in case.subscriptions[member].topics
        for member, share in shares.items()
        for one in share.partitions
    )


def as_sets(shares: Mapping[str, Assignment]) -> dict[str, list[str]]:
    return {member: sorted(map(str, share.partitions)) for member, share in shares.items()}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_meeting_ends_as_with_a_leader_written_in_java(java: JavaProcess, name: str) -> None:
    incomparable = 0
    for seed in range(GROUPS):
        group = Group(seed, name)
        for meeting in range(MEETINGS):
            case = group.meet()
            [assignor] = assignors_from([name])
            ours = assignor.assign(case.partition_counts, case.subscriptions)
            theirs = ask(java, case)
            shares = {member: share for member, (share, _) in theirs.items()}
            assert not has_unwanted(case, ours)
            if has_unwanted(case, shares):
                incomparable += 1
            else:
                assert as_sets(ours) == as_sets(shares), f"seed {seed}, meeting {meeting}: {case}"
            for member, (_, again) in theirs.items():
                assert again == case.subscriptions[member].encode()
                assert Subscription.decode(again).topics == tuple(
                    sorted(case.subscriptions[member].topics)
                )
            group.divided(ours)
    assert incomparable < GROUPS * MEETINGS / 50
