"""The partitions that need attention, kept up to date with the context."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plogd.controller.controller_context import ControllerContext
from plogd.controller.topic_writes import known_topic
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import TopicValue

STATES = st.builds(
    PartitionState,
    partition=st.just(0),
    leader=st.sampled_from([-1, 1, 2]),
    leader_epoch=st.just(0),
    replicas=st.sampled_from([(1, 2), (2, 1)]),
    isr=st.just((1, 2)),
    partition_epoch=st.just(0),
    adding_replicas=st.sampled_from([(), (2,)]),
)
TOPICS = st.dictionaries(st.sampled_from("abc"), st.lists(STATES, min_size=1, max_size=3))
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), STATES), max_size=10)


@given(TOPICS, CHANGES, st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_index_agrees_with_all_partitions(
    topics: dict[str, list[PartitionState]],
    changes: list[tuple[str, int, PartitionState]],
    deleting: set[str],
    dropped: set[str],
) -> None:
    context = ControllerContext()
    for name, states in topics.items():
        # A topic can also get other partitions than before.
        for some in (states, states[:1], states):
            value = TopicValue(topic_id=name.encode() * 16, assignments={})
            numbered = [(replace(one, partition=n), 0) for n, one in enumerate(some)]
            context.put(known_topic(name, value, 0, numbered, {}))
    for name, number, state in changes:
        context.put_partitions(name, {number: (replace(state, partition=number), 1)})
    for name in dropped & topics.keys():
        context.drop(name)
    context.deleting |= deleting & topics.keys() - dropped
    everything = {
        name: known.state.partitions for name in topics if (known := context.get(name)) is not None
    }
    index = context.partitions
    for found, holds in (
        (index.leaderless, lambda one: one.leader == -1),
        (index.not_preferred, lambda one: one.leader != one.replicas[0]),
        (index.reassigning, lambda one: one.adding_replicas != ()),
    ):
        expected = {
            name: {one.partition for one in states if holds(one)}
            for name, states in everything.items()
        }
        assert found.by_topic() == {name: some for name, some in expected.items() if some}
        assert found.count == sum(map(len, expected.values()))
    served = [
        one for name, states in everything.items() if name not in context.deleting for one in states
    ]
    counts = index.counts(context.deleting)
    assert counts.leaderless == sum(one.leader == -1 for one in served)
    assert counts.not_preferred == sum(one.leader != one.replicas[0] for one in served)
