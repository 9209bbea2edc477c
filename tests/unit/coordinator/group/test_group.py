"""Group: states, counters, protocol selection and validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from plog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from plogd.coordinator.group.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    VALID_PREVIOUS_STATES,
    Group,
    GroupState,
)
from plogd.coordinator.group.member import Member, MemberProtocol
from plogd.ports import Later
from tests.helpers.group.group_shard import subscription

NOW_MS = 5_000


def member(
    member_id: str = "m",
    *names: str,
    instance: str | None = None,
    is_joining: bool = False,
    metadata: bytes = b"",
    **fields: Any,
) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 1000),
        session_timeout_ms=500,
        protocols=tuple(MemberProtocol(name, metadata) for name in names or ("range",)),
        join=Later() if is_joining else None,
        **fields,
    )


def group_of(*members: Member, state: GroupState = PREPARING_REBALANCE, **fields: Any) -> Group:
    group = Group("g", state=state, state_since_ms=1, **fields)
    for one in members:
        group.add(one, "consumer")
    return group


def in_generation(*members: Member, state: GroupState = STABLE) -> Group:
    group = group_of(*members)
    group.begin_generation(NOW_MS)
    if state is not COMPLETING_REBALANCE:
        group.transition_to(STABLE, NOW_MS)
    return group


# -- states -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", GroupState)
@pytest.mark.parametrize("origin", GroupState)
def test_only_transitions_of_the_table_are_valid(origin: GroupState, to: GroupState) -> None:
    group = Group("g", state=origin, state_since_ms=1)
    if origin in VALID_PREVIOUS_STATES[to]:
        group.transition_to(to, NOW_MS)
        assert (group.state, group.state_since_ms) == (to, NOW_MS)
    else:
        with pytest.raises(AssertionError):
            group.transition_to(to, NOW_MS)


@pytest.mark.parametrize("state", [state for state in GroupState if state is not DEAD])
def test_rebalance_can_start_in_valid_states(state: GroupState) -> None:
    group = Group("g", state=state, state_since_ms=1)
    assert group.can_rebalance == (state is not PREPARING_REBALANCE)


def test_empty_since_is_the_time_of_the_transition_to_empty() -> None:
    group = group_of()
    assert group.empty_since is None
    group.begin_generation(NOW_MS)
    assert (group.is_empty, group.empty_since) == (True, NOW_MS)
    assert Group("g", state_since_ms=None).empty_since is None


def test_rebalance_of_an_empty_group_is_initial() -> None:
    group = Group("g", state_since_ms=1)
    group.transition_to(PREPARING_REBALANCE, NOW_MS)
    assert group.is_initial_rebalance
    group.add(member(), "consumer")
    group.begin_generation(NOW_MS)
    group.transition_to(PREPARING_REBALANCE, NOW_MS)
    assert not group.is_initial_rebalance


# -- members ----------------------------------------------------------------------------------


def test_first_member_becomes_leader_and_sets_the_protocol_type() -> None:
    group = Group("g", state_since_ms=1)
    group.add(member("a"), "connect")
    group.add(member("b"), "connect")
    assert (group.leader_id, group.protocol_type) == ("a", "connect")


def test_another_member_becomes_leader_when_the_leader_leaves() -> None:
    group = group_of(member("a"), member("b"))
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_waiting_joins_are_counted() -> None:
    a, b = member("a", is_joining=True), member("b")
    group = group_of(a, b)
    assert (group.waiting_joins, group.has_all_joined) == (1, False)
    assert group.not_yet_joined() == [b]
    group.set_join(b, Later())
    assert (group.waiting_joins, group.has_all_joined) == (2, True)
    group.set_join(b, Later())
    assert group.waiting_joins == 2
    group.pending_joins.add("c")
    assert not group.has_all_joined
    group.remove("c")
    assert group.has_all_joined
    group.remove("a")
    assert (group.waiting_joins, group.has_all_joined) == (1, True)
    group.set_join(b, None)
    assert (group.waiting_joins, group.has_all_joined) == (0, False)


def test_pending_id_is_removed_when_it_becomes_a_member() -> None:
    group = group_of()
    group.pending_joins.add("a")
    group.add(member("a"), "consumer")
    assert group.pending_joins == set()


def test_longest_rebalance_timeout_applies() -> None:
    group = group_of(member("a"), member("b", rebalance_timeout_ms=3000), member("c"))
    assert group.rebalance_timeout_ms == 3000
    assert group_of().rebalance_timeout_ms == 0


def test_static_member_keeps_its_state_under_a_new_id() -> None:
    group = group_of(member("a", instance="i", is_new=True), member("b"))
    group.pending_syncs.add("a")
    renamed = group.rename_static_member("a", "c")
    assert renamed.member_id == "c"
    assert not renamed.is_new
    assert set(group.members) == {"b", "c"}
    assert (group.static_member_id("i"), group.leader_id) == ("c", "c")
    assert group.pending_syncs == {"c"}
    group.remove("c")
    assert group.static_member_id("i") is None


def test_missing_instance_id_belongs_to_no_member() -> None:
    assert group_of(member("a")).static_member_id(None) is None


# -- protocols --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol_type", "names", "fits"),
    [
        ("consumer", ["range"], True),
        ("consumer", ["x", "roundrobin"], False),
        ("consumer", ["sticky"], False),
        ("consumer", [], False),
        ("connect", ["range"], False),
        ("", ["range"], False),
    ],
)
def test_protocols_must_match_all_members(protocol_type: str, names: list[str], fits: bool) -> None:
    group = group_of(member("a", "range", "roundrobin"), member("b", "sticky", "range"))
    assert group.supports(protocol_type, names) is fits


@pytest.mark.parametrize(
    ("protocol_type", "names", "fits"),
    [("any", ["x"], True), ("any", [], False), ("", ["x"], False)],
)
def test_empty_group_accepts_any_protocol(protocol_type: str, names: list[str], fits: bool) -> None:
    group = group_of(state=EMPTY, protocol_type="consumer")
    assert group.supports(protocol_type, names) is fits


def test_protocol_repeated_by_one_member_counts_once() -> None:
    group = group_of(member("a", "x", "x", "range"), member("b", "range"))
    assert not group.supports("consumer", ["x"])
    assert group.select_protocol() == "range"


@pytest.mark.parametrize(
    ("preferences", "selected"),
    [
        ({"a": "range sticky", "b": "sticky range", "c": "sticky range"}, "sticky"),
        ({"a": "range sticky", "b": "sticky"}, "sticky"),
        ({"a": "x range", "b": "y range", "c": "z range"}, "range"),
        ({"a": "range sticky", "b": "sticky range"}, "range"),
    ],
)
def test_selected_protocol_is_supported_by_all_and_preferred_by_most(
    preferences: Mapping[str, str], selected: str
) -> None:
    group = group_of(*(member(name, *text.split()) for name, text in preferences.items()))
    assert group.select_protocol() == selected


def test_latest_protocols_of_a_member_apply() -> None:
    a, b = member("a", "range"), member("b", "range")
    group = group_of(a, b)
    for one in (a, b):
        group.update(
            one,
            protocols=(MemberProtocol("sticky", b""), MemberProtocol("range", b"")),
            rebalance_timeout_ms=7,
            session_timeout_ms=8,
        )
    assert group.select_protocol() == "sticky"
    assert (a.rebalance_timeout_ms, a.session_timeout_ms) == (7, 8)
    group.remove("a")
    assert group.supports("consumer", ["sticky"])
    assert not group.supports("consumer", ["other"])


def test_generation_without_members_has_no_protocol() -> None:
    group = group_of(protocol_name="range", generation_id=4)
    group.begin_generation(NOW_MS)
    assert (group.state, group.generation_id, group.protocol_name) == (EMPTY, 5, None)


def test_joined_member_leads_the_next_generation() -> None:
    group = group_of(member("a"), member("b"), member("c", is_joining=True))
    assert group.elect_joined_leader()
    assert group.leader_id == "c"
    group.set_join(group.members["a"], Later())
    assert group.elect_joined_leader()
    assert group.leader_id == "c"


def test_no_leader_is_elected_when_no_member_has_joined() -> None:
    assert not group_of(member("a")).elect_joined_leader()
    assert not group_of().elect_joined_leader()


# -- subscribed topics ------------------------------------------------------------------------


def test_subscribed_topics_include_those_of_all_members() -> None:
    group = in_generation(
        member("a", metadata=subscription("t", "u")), member("b", metadata=subscription("v"))
    )
    assert group.subscribed_topics == {"t", "u", "v"}
    assert group.is_subscribed_to("u")
    assert not group.is_subscribed_to("w")


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\xff", b"\xff\xff\0\0\0\0"])
def test_subscribed_topics_are_unknown_when_metadata_is_invalid(metadata: bytes) -> None:
    group = in_generation(member("a", metadata=subscription("t")), member("b", metadata=metadata))
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")


def test_empty_consumer_group_subscribes_to_nothing() -> None:
    group = group_of(member("a", metadata=subscription("t")))
    group.remove("a")
    group.begin_generation(NOW_MS)
    assert group.subscribed_topics == frozenset()
    assert not group.is_subscribed_to("t")


def test_groups_of_other_protocol_types_subscribe_to_nothing() -> None:
    group = Group("g", state=PREPARING_REBALANCE, state_since_ms=1)
    group.add(member("a", metadata=subscription("t")), "connect")
    group.begin_generation(NOW_MS)
    assert group.subscribed_topics is None
    assert not group.is_subscribed_to("t")


# -- validation of requests -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("a", None, None),
        ("s", "i", None),
        ("s", None, None),
        ("x", None, UnknownMemberId),
        ("", None, UnknownMemberId),
        ("s", "other", UnknownMemberId),
        ("a", "i", FencedInstanceId),
        ("", "i", FencedInstanceId),
    ],
)
def test_validate_member_checks_member_and_instance_id(
    member_id: str, instance: str | None, error: type[KafkaError] | None
) -> None:
    group = group_of(member("a"), member("s", instance="i"))
    if error is None:
        assert group.validate_member(member_id, instance).member_id == member_id
    else:
        with pytest.raises(error):
            group.validate_member(member_id, instance)


@pytest.mark.parametrize(
    ("member_id", "instance", "generation_id", "error"),
    [
        ("a", None, 1, None),
        ("s", "i", 1, None),
        ("a", None, 0, IllegalGeneration),
        ("a", None, 2, IllegalGeneration),
        ("a", None, -1, IllegalGeneration),
        ("x", None, 1, UnknownMemberId),
        ("", None, 1, UnknownMemberId),
        ("", None, -1, UnknownMemberId),
        ("a", "i", 1, FencedInstanceId),
        ("", "j", -1, UnknownMemberId),
    ],
)
def test_validate_offset_commit_checks_members(
    member_id: str, instance: str | None, generation_id: int, error: type[KafkaError] | None
) -> None:
    group = in_generation(member("a"), member("s", instance="i"))
    if error is None:
        group.validate_offset_commit(member_id, instance, generation_id)
    else:
        with pytest.raises(error):
            group.validate_offset_commit(member_id, instance, generation_id)


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [("", -1, None), ("a", -1, None), ("a", 0, UnknownMemberId), ("", 0, UnknownMemberId)],
)
def test_validate_offset_commit_allows_simple_consumers_in_an_empty_group(
    member_id: str, generation_id: int, error: type[KafkaError] | None
) -> None:
    group = group_of(state=EMPTY)
    if error is None:
        group.validate_offset_commit(member_id, None, generation_id)
    else:
        with pytest.raises(error):
            group.validate_offset_commit(member_id, None, generation_id)


def test_offset_commit_is_refused_between_join_and_assignment() -> None:
    group = in_generation(member("a"), state=COMPLETING_REBALANCE)
    with pytest.raises(RebalanceInProgress):
        group.validate_offset_commit("a", None, 1)
    group.transition_to(PREPARING_REBALANCE, NOW_MS)  # Progress may be committed.
    group.validate_offset_commit("a", None, 1)


def test_offset_commit_is_refused_for_a_dead_group() -> None:
    with pytest.raises(CoordinatorNotAvailable):
        group_of(state=DEAD).validate_offset_commit("", None, -1)


@pytest.mark.parametrize("state", [PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE])
def test_group_with_members_cannot_be_deleted(state: GroupState) -> None:
    with pytest.raises(NonEmptyGroup):
        group_of(member("a"), state=state).validate_delete()
    group_of(state=EMPTY).validate_delete()


@pytest.mark.parametrize("state", [PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE])
def test_offset_delete_is_refused_when_subscriptions_are_unknown(
    state: GroupState,
) -> None:
    group = group_of(state=state, protocol_type="connect")
    with pytest.raises(NonEmptyGroup):
        group.validate_offset_delete()
    group_of(state=state, protocol_type="consumer").validate_offset_delete()
    group_of(state=EMPTY, protocol_type="connect").validate_offset_delete()
