"""Consumer groups compared with Apache Kafka: joining, committing, describing, and all refusals."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.messages.delete_groups import DeleteGroupsRequest
from plog.wire.messages.describe_groups import DescribeGroupsRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from plog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from plog.wire.messages.list_groups import ListGroupsRequest
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.helpers.side_by_side import Comparison, Pair, Request, Side
from tests.integration.kafka_comparison.test_records import create
from tests.integration.kafka_comparison.versions import lowest_and_highest

MEMBER_ID_REQUIRED = 79
_FIRST_JOIN_WITH_REQUIRED_ID = 4
_FIRST_COMMIT_WITH_IDS = _FIRST_FETCH_WITH_IDS = 10
_FIRST_FETCH_OF_MANY = 8
SUBSCRIPTION = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
"""Version 1: one topic, no user data, no owned partitions. Kafka ignores invalid ones."""
_MEMBER_IDS = ("member_id", "leader")
"""The broker generates them from the client id and a random id."""


@pytest.fixture(scope="module", autouse=True)
def _wait_for_coordinators(pair: Pair) -> None:
    """Wait for the coordinators: Kafka creates the offsets topic at the first request."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    deadline = time.monotonic() + 60
    for side in (pair.ours, pair.kafka):
        while side.ask(request, 4)["coordinators"][0]["error_code"] != 0:
            assert time.monotonic() < deadline, f"{side.name} has no coordinator"
    for number in range(9):  # Most likely, each of the three partitions gets a commit.
        listed = commit(f"warm-{number}", "nowhere")
        while pair.kafka.ask(listed, 8)["topics"][0]["partitions"][0]["error_code"] in (14, 15, 16):
            assert time.monotonic() < deadline, "Kafka's coordinators do not load"


def commit(group: str, topic: str, offset: int = 5, **fields: Any) -> Request:
    """Return a request that commits an offset of partition 0 with metadata."""
    partition = OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata=fields.pop("metadata", "where I was"),
    )

    def request(side: Side) -> OffsetCommitRequest:
        named = OffsetCommitRequestTopic(
            name=topic, topic_id=side.told.get(topic, b"\7" * 16), partitions=[partition]
        )
        member = {name: value(side) for name, value in fields.items() if callable(value)}
        return OffsetCommitRequest(group_id=group, topics=[named], **(fields | member))

    return request


def fetch(group: str, version: int, *topics: str, all_of_them: bool = False) -> Request:
    """Return a request for the committed offsets of partitions 0 and 1."""

    def request(side: Side) -> OffsetFetchRequest:
        if version < _FIRST_FETCH_OF_MANY:
            old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics]
            return OffsetFetchRequest(group_id=group, topics=None if all_of_them else old)
        named = [
            OffsetFetchRequestTopics(
                name=name, topic_id=side.told.get(name, b"\7" * 16), partition_indexes=[0, 1]
            )
            for name in topics
        ]
        asked = OffsetFetchRequestGroup(group_id=group, topics=None if all_of_them else named)
        return OffsetFetchRequest(groups=[asked])

    return request


def join(group: str, **fields: Any) -> Request:
    """Return a JoinGroup request with the member id that the side has assigned."""
    protocols = fields.pop("protocols", [("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION)])
    fields = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
    } | fields

    def request(side: Side) -> JoinGroupRequest:
        assigned = {"member_id": side.told.get(f"member of {group}", "")}
        return JoinGroupRequest(
            group_id=group,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
            **(assigned | fields),
        )

    return request


def join_both(pair: Pair, group: str, version: int, **fields: Any) -> Any:
    """Join on both sides like a client: with the assigned member id, if one is required."""
    if version >= _FIRST_JOIN_WITH_REQUIRED_ID and "group_instance_id" not in fields:
        for side, answer in zip(
            _sides(pair), pair.ask(join(group, **fields), version), strict=True
        ):
            assert answer["error_code"] == MEMBER_ID_REQUIRED
            side.told[f"member of {group}"] = answer["member_id"]
    answers = []
    for side in _sides(pair):
        answer = side.ask(join(group, **fields), version)
        side.told[f"member of {group}"] = answer["member_id"]
        answers.append(answer)
    return answers


def sync(group: str, generation: int = 1, **fields: Any) -> Request:
    """Return the SyncGroup request of a leader that assigns everything to itself."""

    def request(side: Side) -> SyncGroupRequest:
        member = side.told.get(f"member of {group}", "")
        mine = SyncGroupRequestAssignment(member_id=member, assignment=b"all of it")
        defaults = {"member_id": member, "assignments": [mine]}
        return SyncGroupRequest(group_id=group, generation_id=generation, **(defaults | fields))

    return request


def stable(pair: Pair, group: str) -> None:
    """Create a group with one member in generation 1."""
    join_both(pair, group, 5)
    pair.same(sync(group), 3)


def member(group: str) -> Any:
    return lambda side: side.told[f"member of {group}"]


def _sides(pair: Pair) -> tuple[Side, Side]:
    return pair.ours, pair.kafka


# -- finding ---------------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.FIND_COORDINATOR)
def test_coordinator_is_found(pair: Pair, version: int) -> None:
    asked: dict[str, Any] = {"key": "a group"}
    if version >= 4:
        asked = {"coordinator_keys": ["a group", "another"]}
    pair.same(FindCoordinatorRequest(**asked), version)


# -- committing and fetching -----------------------------------------------------------------------


@lowest_and_highest(ApiKey.OFFSET_COMMIT)
def test_offsets_are_committed_without_a_group(pair: Pair, version: int) -> None:
    name = f"committed-{version}"
    create(pair, name)
    pair.same(commit(f"simple-{version}", name), version)
    pair.same(commit(f"simple-{version}", "nowhere"), version)
    pair.same(fetch(f"simple-{version}", 9, name), 9)
    pair.same(commit(f"simple-{version}", name, metadata="x" * 5000), version)
    pair.same(commit(f"simple-{version}", name, metadata=None), version)
    pair.same(fetch(f"simple-{version}", 9, name), 9)


@lowest_and_highest(ApiKey.OFFSET_COMMIT)
def test_commits_of_unknown_members_and_old_generations_are_refused(
    pair: Pair, version: int
) -> None:
    name, group = f"fenced-{version}", f"fenced-{version}"
    create(pair, name)
    stable(pair, group)
    mine = member(group)
    generation = "generation_id_or_member_epoch"
    for fields in (
        {generation: 1, "member_id": mine},
        {generation: 0, "member_id": mine},
        {generation: 2, "member_id": mine},
        {generation: 1, "member_id": "stranger"},
        {},
    ):
        pair.same(commit(group, name, **fields), version)
    pair.same(commit("no-such-group", name, **{generation: 1, "member_id": "me"}), version)


@lowest_and_highest(ApiKey.OFFSET_FETCH)
def test_committed_offsets_are_fetched(pair: Pair, version: int) -> None:
    name = f"fetched-{version}"
    create(pair, name, 2)
    pair.same(commit(f"fetching-{version}", name), 8)
    for group in (f"fetching-{version}", "no-such-group"):
        pair.same(fetch(group, version, name), version)
        pair.same(fetch(group, version, "nowhere"), version)
        if version >= 2:
            pair.same(fetch(group, version, all_of_them=True), version)


@lowest_and_highest(ApiKey.OFFSET_DELETE)
def test_committed_offsets_are_deleted(pair: Pair, version: int) -> None:
    name, group = f"forgotten-{version}", f"forgetting-{version}"
    create(pair, name)
    pair.same(commit(group, name), 8)
    partition = OffsetDeleteRequestPartition(partition_index=0)
    for topic in (name, "nowhere"):
        named = OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        for who in (group, "no-such-group"):
            pair.same(OffsetDeleteRequest(group_id=who, topics=[named]), version)
    pair.same(fetch(group, 9, name), 9)


# -- joining -------------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.JOIN_GROUP)
def test_first_member_leads(pair: Pair, version: int) -> None:
    group = f"joined-{version}"
    if version >= _FIRST_JOIN_WITH_REQUIRED_ID:
        pair.same(join(f"{group}-asked"), version, by_kind=_MEMBER_IDS)
    ours, kafkas = join_both(pair, group, version)
    for answer in (ours, kafkas):
        assert answer["leader"] == answer["member_id"] == answer["members"][0]["member_id"]
        for one in (answer, answer["members"][0]):
            one["member_id"] = None
        answer["leader"] = None
    assert ours == kafkas
    pair.same(sync(group), 3)
    # The leader rejoins, which begins a new generation.
    ours, kafkas = pair.ask(join(group), version)
    assert (ours["generation_id"], ours["error_code"]) == (2, 0)
    assert (kafkas["generation_id"], kafkas["error_code"]) == (2, 0)


@lowest_and_highest(ApiKey.JOIN_GROUP)
@pytest.mark.parametrize(
    "fields",
    [
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 1 << 30},
        {"member_id": "a stranger"},
        {"protocols": []},
        {"protocol_type": ""},
    ],
    ids=["short-timeout", "long-timeout", "unknown-member", "no-protocols", "no-protocol-type"],
)
def test_invalid_joins_are_refused(pair: Pair, version: int, fields: dict[str, Any]) -> None:
    pair.same(join("may-not", **fields), version, by_kind=_MEMBER_IDS)


@lowest_and_highest(ApiKey.JOIN_GROUP)
def test_join_without_group_id_or_common_protocol_is_refused(pair: Pair, version: int) -> None:
    pair.same(join(""), version, by_kind=_MEMBER_IDS)
    group = f"speaks-{version}"
    stable(pair, group)
    for fields in (
        {"protocol_type": "connect"},
        {"protocols": [("unheard of", b"")]},
    ):
        pair.same(join(group, member_id="", **fields), version, by_kind=_MEMBER_IDS)


@lowest_and_highest(ApiKey.JOIN_GROUP, lowest=5)
def test_static_member_rejoins(pair: Pair, version: int) -> None:
    group = f"static-{version}"
    ours, kafkas = join_both(pair, group, version, group_instance_id="one")
    assert (ours["error_code"], kafkas["error_code"]) == (0, 0)
    pair.same(sync(group, group_instance_id="one"), 3)
    old = {side.name: side.told[f"member of {group}"] for side in _sides(pair)}
    again = pair.same(
        join(group, member_id="", group_instance_id="one"),
        version,
        by_kind=(*_MEMBER_IDS, "members"),
        ignoring=["members"],
    )
    assert again["member_id"] != old["plog"]

    def heartbeat(side: Side) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=group, generation_id=1, member_id=old[side.name], group_instance_id="one"
        )

    pair.same(heartbeat, 4)  # The old member id is fenced.


@lowest_and_highest(ApiKey.SYNC_GROUP)
def test_assignment_is_returned(pair: Pair, version: int) -> None:
    group = f"synced-{version}"
    join_both(pair, group, 5)
    fields = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    pair.same(sync(group, **fields), version)
    pair.same(sync(group, assignments=[], **fields), version)  # A retry in a stable group.
    for wrong in (
        {"generation": 0},
        {"generation": 7},
        {"member_id": "stranger"},
        {"group": "no-such-group"},
    ):
        pair.same(sync(**({"group": group} | fields | wrong)), version)
    if version >= 5:
        pair.same(sync(group, protocol_type="connect", protocol_name="range"), version)
        pair.same(sync(group, protocol_type="consumer", protocol_name="sticky"), version)


@lowest_and_highest(ApiKey.SYNC_GROUP)
def test_missing_assignment_is_returned_as_empty(pair: Pair, version: int) -> None:
    """The assignment is empty, not null: null broke clients of other brokers."""
    group = f"nothing-{version}"
    join_both(pair, group, 5)
    fields = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    answer = pair.same(sync(group, assignments=[], **fields), version)
    assert answer["assignment"] == b""


@lowest_and_highest(ApiKey.HEARTBEAT)
def test_heartbeats_get_the_same_errors(pair: Pair, version: int) -> None:
    group = f"beating-{version}"

    def heartbeat(generation: int, member_id: str | None = None, name: str = group) -> Request:
        return lambda side: HeartbeatRequest(
            group_id=name,
            generation_id=generation,
            member_id=side.told[f"member of {group}"] if member_id is None else member_id,
        )

    join_both(pair, group, 5)
    pair.same(heartbeat(1), version)  # The group awaits the assignment.
    pair.same(sync(group), 3)
    for request in (
        heartbeat(1),
        heartbeat(0),
        heartbeat(2),
        heartbeat(1, "stranger"),
        heartbeat(1, name="no-such-group"),
        heartbeat(1, name=""),
    ):
        pair.same(request, version)


@lowest_and_highest(ApiKey.LEAVE_GROUP)
def test_leaving_gets_the_same_errors(pair: Pair, version: int) -> None:
    group = f"left-{version}"
    stable(pair, group)

    def leave(member_id: str | None, name: str = group) -> Request:
        def request(side: Side) -> LeaveGroupRequest:
            who = side.told[f"member of {group}"] if member_id is None else member_id
            if version < 3:
                return LeaveGroupRequest(group_id=name, member_id=who)
            return LeaveGroupRequest(
                group_id=name, members=[MemberIdentity(member_id=who, group_instance_id=None)]
            )

        return request

    for request in (
        leave("stranger"),
        leave(None),
        leave(None),
        leave("me", "no-such-group"),
        leave("me", ""),
    ):
        pair.same(request, version, by_kind=["member_id"])


# -- administration --------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.DESCRIBE_GROUPS)
def test_groups_are_described(pair: Pair, version: int) -> None:
    stable(pair, f"described-{version}")
    create(pair, f"described-{version}")
    pair.same(commit(f"offsets-only-{version}", f"described-{version}"), 8)
    for name in (f"described-{version}", f"offsets-only-{version}", "no-such-group", ""):
        pair.same(DescribeGroupsRequest(groups=[name]), version, by_kind=_MEMBER_IDS)


@lowest_and_highest(ApiKey.LIST_GROUPS)
def test_groups_are_listed(pair: Pair, version: int) -> None:
    stable(pair, f"listed-{version}")
    requests = [ListGroupsRequest()]
    if version >= 4:
        states = (["Stable"], ["stable", "Empty"], ["Dead"], ["No such state"])
        requests += [ListGroupsRequest(states_filter=each) for each in states]
    if version >= 5:
        requests += [ListGroupsRequest(types_filter=each) for each in (["classic"], ["Classic"])]
    for request in requests:
        ours, kafkas = pair.ask(request, version)
        # In Kafka, a refused join leaves an empty group.
        left = [one for one in kafkas["groups"] if one["group_id"] != "may-not"]
        compare = Comparison(unordered={"groups"})
        assert not list(compare.differences(ours, kafkas | {"groups": left}))


@lowest_and_highest(ApiKey.DELETE_GROUPS)
def test_groups_are_deleted_only_without_members(pair: Pair, version: int) -> None:
    stable(pair, f"kept-{version}")
    create(pair, f"deleted-with-group-{version}")
    pair.same(commit(f"empty-{version}", f"deleted-with-group-{version}"), 8)
    names = [f"kept-{version}", f"empty-{version}", "no-such-group", ""]
    for _ in range(2):
        pair.same(DeleteGroupsRequest(groups_names=names), version, unordered=["results"])
