"""The commit before a revocation, with automatic commits: polls do not wait for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import OffsetCommitRequest
from plog.wire.schema import ApiMessage
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
POLL_S = 0.5


class Application:
    """A polling member of a group; it is also its own rebalance listener."""

    def __init__(self, sim: SimNetwork, strategy: str, **settings: object) -> None:
        self.sim = sim
        self.calls: list[tuple[str, list[str]]] = []
        self.seen: list[tuple[str, int]] = []
        self.settings = ConsumerSettings.from_options(
            bootstrap_servers=sim.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy,
            default_api_timeout_ms=20_000,
            request_timeout_ms=5_000,
            session_timeout_ms=60_000,
            **settings,
        )
        self.cluster = Cluster(sim, self.settings)
        self.core = PollingConsumer(self.cluster, sim, self.settings)

    def subscribe(self, *topics: str) -> None:
        self.core.subscribe(topics, listener=self)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", [str(one) for one in partitions]))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", [str(one) for one in partitions]))

    def poll(self) -> list[ConsumerRecord]:
        """Poll once, and check that the poll keeps its timeout."""
        before_s = self.sim.now_s()
        records = self.sim.run(self.core.consume(100, POLL_S))
        assert self.sim.now_s() - before_s <= POLL_S + 0.001
        self.seen += [(f"{record.topic}-{record.partition}", record.offset) for record in records]
        return records

    def poll_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            self.poll()
        raise AssertionError("the condition never became true")

    def committed(self, partition: TopicPartition) -> int | None:
        found = self.sim.run(self.core.committed([partition]))[partition]
        return None if found is None else found.offset


class Trouble:
    """A fault: the coordinator receives no commits while `on` is true."""

    def __init__(self, sim: SimNetwork) -> None:
        self.on = False
        self.tries = 0
        sim.on_request = self

    def __call__(self, request: ApiMessage) -> str | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        self.tries += 1
        return "drop" if self.on else None


@pytest.fixture
def sim() -> SimNetwork:
    sim = SimNetwork()
    create_topic(sim.broker, "t", partitions=2)
    create_topic(sim.broker, "u", partitions=1)
    return sim


def reading(sim: SimNetwork, strategy: str, **settings: object) -> Application:
    """Return an application that has read both records of t-0."""
    application = Application(sim, strategy, auto_commit_interval_ms=600_000, **settings)
    sim.broker.produce("t", b"a", b"b")
    application.subscribe("t")
    application.poll_until(lambda: len(application.seen) == 2)
    return application


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_polls_keep_their_timeout_while_the_revocation_commits(
    sim: SimNetwork, strategy: str
) -> None:
    application = reading(sim, strategy)
    trouble = Trouble(sim)
    trouble.on = True
    application.subscribe("u")
    sim.broker.produce("t", b"c")
    sim.broker.produce("u", b"d")
    for _ in range(10):
        assert application.poll() == [], "the next owner would read its records again"
    assert application.calls == [("assigned", ["t-0", "t-1"])]
    assert trouble.tries > 3
    trouble.on = False
    application.poll_until(lambda: len(application.seen) == 3)
    assert application.calls[1:] == [("revoked", ["t-0", "t-1"]), ("assigned", ["u-0"])]
    assert application.committed(T0) == 2
    assert application.seen[2:] == [("u-0", 0)]


def test_kept_partitions_are_read_and_committed_during_a_revocation(
    sim: SimNetwork,
) -> None:
    application = reading(sim, "cooperative-sticky")
    trouble = Trouble(sim)
    trouble.on = True
    application.subscribe("t", "u")
    application.poll()
    sim.broker.produce("t", b"c")
    application.poll_until(lambda: len(application.seen) == 3)
    for _ in range(5):
        application.poll()
    assert application.calls == [("assigned", ["t-0", "t-1"])]
    trouble.on = False
    application.poll_until(lambda: len(application.calls) == 2)
    assert application.calls[1:] == [("assigned", ["u-0"])]
    assert application.committed(T0) == 3


@pytest.mark.parametrize("limit", ["default_api_timeout_ms", "max_poll_interval_ms"])
def test_revocation_ends_after_the_rebalance_timeout(sim: SimNetwork, limit: str) -> None:
    application = reading(sim, "range")
    settings = application.settings
    object.__setattr__(settings, limit, 7_000)
    Trouble(sim).on = True
    application.subscribe("u")
    before_s = sim.now_s()
    application.poll_until(lambda: len(application.calls) == 2)
    assert 7 <= sim.now_s() - before_s < 8.5
    application.poll_until(lambda: application.core.assignment == {U0})
    assert [what for what, _ in application.calls] == ["assigned", "revoked", "assigned"]


def test_permanently_refused_commit_is_not_retried(
    sim: SimNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    application = reading(sim, "range")
    trouble = Trouble(sim)
    refused = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    name = "plog.client.group.coordinator_offsets.commit_results"
    monkeypatch.setattr(name, lambda _: {T0: refused})
    application.subscribe("u")
    application.poll_until(lambda: application.core.assignment == {U0})
    assert trouble.tries == 1
    assert "may be read twice" in caplog.text


def test_fenced_member_waits_for_no_commit(sim: SimNetwork) -> None:
    application = reading(sim, "range")
    trouble = Trouble(sim)
    trouble.on = True
    application.subscribe("u")
    application.poll()
    member = application.core._member
    tries = trouble.tries
    member._membership.reset("test", keeps_member_id=False)  # type: ignore[union-attr]
    application.poll_until(lambda: application.core.assignment == {U0})
    assert [what for what, _ in application.calls] == ["assigned", "revoked", "assigned"]
    assert trouble.tries == tries


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_leaving_ends_a_revocation(sim: SimNetwork, how: str) -> None:
    application = reading(sim, "range")
    trouble = Trouble(sim)
    trouble.on = True
    application.subscribe("u")
    application.poll()
    before_s = sim.now_s()
    if how == "close":
        sim.run(application.core.close(3))
        assert sim.now_s() - before_s < 9
    else:
        sim.run(application.core.unsubscribe())
        assert sim.now_s() - before_s < 6
        trouble.on = False
        application.core.assign([T0])
        assert [x.value for x in sim.run(application.core.consume(10))] == [b"a", b"b"]
    assert [what for what, _ in application.calls] == ["assigned", "revoked"]


def test_cancelled_revocation_keeps_the_partitions(sim: SimNetwork) -> None:
    application = reading(sim, "cooperative-sticky")
    trouble = Trouble(sim)
    trouble.on = True
    application.subscribe("u")
    application.poll()
    application.subscribe("t", "u")
    trouble.on = False
    application.poll_until(lambda: U0 in application.core.assignment)
    assert application.calls[1:] == [("assigned", ["u-0"])]
    sim.broker.produce("t", b"c")
    application.poll_until(lambda: application.seen[-1] == ("t-0", 2))


def test_partitions_are_committed_before_another_member_gets_them(
    sim: SimNetwork,
) -> None:
    """A cooperative member learns only from its assignment which partitions to revoke."""
    first = reading(sim, "cooperative-sticky")
    trouble = Trouble(sim)
    second = Application(sim, "cooperative-sticky")
    second.subscribe("t")
    sim.broker.produce("t", b"x", b"y", partition=1)
    first.poll_until(lambda: len(first.seen) == 4)
    trouble.on = True

    def polls(count: int) -> None:
        for _ in range(count):
            first.poll()
            second.poll()

    polls(8)
    trouble.on = False
    polls(20)
    assert len(first.core.assignment) == len(second.core.assignment) == 1
    assert second.seen == []
    sim.broker.produce("t", b"z", partition=0)
    sim.broker.produce("t", b"z", partition=1)
    polls(4)
    assert sorted(first.seen + second.seen) == [
        *(("t-0", offset) for offset in range(3)),
        *(("t-1", offset) for offset in range(3)),
    ]
