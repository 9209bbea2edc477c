"""Every call with a time limit keeps it, whatever the broker or the network does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from plog.client.admin.base import is_operation
from plog.client.admin.core import AdminCore
from plog.client.admin.results import Results
from plog.client.errors import ConnectionFailed
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.producer.core import ProducerCore
from plog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from plog.client.transactions.transactional_producer import producer_core
from plog.errors import PlogError, RequestTimedOut
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.helpers.admin_calls import ADMIN_CALLS, T0
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

LIMIT_S = 3.0
_SLACK_S = 0.1
"""Virtual time for a last message in transit."""


def silent(sim: SimNetwork) -> None:
    """Make the broker accept connections and requests but never respond."""
    sim.deaf = True


def swallowing(sim: SimNetwork) -> None:
    """Break all connections, and drop the packets of new ones."""
    sim.drop_all()
    sim.swallows = True


def refusing(sim: SimNetwork) -> None:
    """Break all connections, and refuse new ones."""
    sim.drop_all()
    sim.refuses = True


FAULTS = [silent, swallowing, refusing]
Fault = Callable[[SimNetwork], None]


@pytest.fixture(params=FAULTS, ids=lambda fault: str(fault.__name__))
def fault(request: pytest.FixtureRequest) -> Fault:
    found: Fault = request.param
    return found


@pytest.fixture(params=[True, False], ids=["connected", "not-connected"])
def is_connected(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.fixture
def sim() -> SimNetwork:
    sim = SimNetwork()
    create_topic(sim.broker, "t")
    return sim


def end_of(sim: SimNetwork, call: Coroutine[Any, Any, Any]) -> tuple[Exception | None, float]:
    """Return the exception of `call`, or None, and how long it takes."""
    before_s = sim.now_s()
    try:
        result = sim.run(call)
    except PlogError as error:
        return error, sim.now_s() - before_s
    failed = next(iter(result.errors.values()), None) if isinstance(result, Results) else None
    return failed, sim.now_s() - before_s


def check_limit(sim: SimNetwork, call: Coroutine[Any, Any, Any], limit_s: float = LIMIT_S) -> None:
    error, took_s = end_of(sim, call)
    assert error is not None
    assert took_s <= limit_s + _SLACK_S
    assert "30 s" not in str(error), "the error names a time that the call did not wait"


def test_table_of_admin_calls_is_complete() -> None:
    operations = {name for name in dir(AdminCore) if is_operation(name, getattr(AdminCore, name))}
    assert set(ADMIN_CALLS) == operations


@pytest.mark.parametrize("name", ADMIN_CALLS)
def test_admin_operation_keeps_default_api_timeout(
    sim: SimNetwork, name: str, fault: Fault, is_connected: bool
) -> None:
    settings = AdminSettings.from_options(
        bootstrap_servers=sim.bootstrap_servers, default_api_timeout_ms=int(LIMIT_S * 1000)
    )
    admin = AdminCore(Cluster(sim, settings))
    if is_connected:
        end_of(sim, getattr(admin, name)(*ADMIN_CALLS[name]))
    fault(sim)
    check_limit(sim, getattr(admin, name)(*ADMIN_CALLS[name]))


CONSUMER_CALLS: dict[str, Callable[[PollingConsumer], Coroutine[Any, Any, Any]]] = {
    "beginning_offsets": lambda core: core.beginning_offsets([T0], LIMIT_S),
    "end_offsets": lambda core: core.end_offsets([T0], LIMIT_S),
    "offsets_for_times": lambda core: core.offsets_for_times({T0: 0}, LIMIT_S),
    "partitions_for": lambda core: core.partitions_for("other", LIMIT_S),
    "position": lambda core: core.position(T0, LIMIT_S),
    "committed": lambda core: core.committed([T0], LIMIT_S),
    "seek_to_committed": lambda core: core.seek_to_committed([T0], LIMIT_S),
    "commit": lambda core: core.commit({T0: 1}, LIMIT_S),
}


@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_consumer_call_keeps_its_timeout(
    sim: SimNetwork, name: str, fault: Fault, is_connected: bool
) -> None:
    settings = ConsumerSettings.from_options(
        bootstrap_servers=sim.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    core = PollingConsumer(Cluster(sim, settings), sim, settings)
    if is_connected and name != "position":
        end_of(sim, CONSUMER_CALLS[name](core))
    fault(sim)
    core.assign([T0])
    check_limit(sim, CONSUMER_CALLS[name](core))


def test_topics_keeps_default_api_timeout(sim: SimNetwork, fault: Fault) -> None:
    settings = ConsumerSettings.from_options(
        bootstrap_servers=sim.bootstrap_servers, default_api_timeout_ms=int(LIMIT_S * 1000)
    )
    core = PollingConsumer(Cluster(sim, settings), sim, settings)
    fault(sim)
    check_limit(sim, core.topics())


@pytest.mark.parametrize("limit_s", [0.0, LIMIT_S])
def test_consumer_close_keeps_its_timeout(sim: SimNetwork, fault: Fault, limit_s: float) -> None:
    settings = ConsumerSettings.from_options(
        bootstrap_servers=sim.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    core = PollingConsumer(Cluster(sim, settings), sim, settings)
    core.subscribe(["t"])
    sim.broker.produce("t", b"a")
    assert sim.run(core.consume(timeout_s=60))
    sim.run(core.consume(timeout_s=0))
    fault(sim)
    before_s = sim.now_s()
    sim.run(core.close(limit_s))
    assert sim.now_s() - before_s <= limit_s + _SLACK_S


def producer(sim: SimNetwork, **settings: Any) -> ProducerCore[Any]:
    made = ProducerSettings.from_options(
        bootstrap_servers=sim.bootstrap_servers, max_block_ms=int(LIMIT_S * 1000), **settings
    )
    return producer_core(Cluster(sim, made), sim, made)


PRODUCER_CALLS: dict[str, Callable[[ProducerCore[Any]], Coroutine[Any, Any, Any]]] = {
    "send": lambda core: core.send_soon("other", b"v"),
    "partitions_for": lambda core: core.partitions_for("other", LIMIT_S),
    "flush": lambda core: core.flush(LIMIT_S),
}


@pytest.mark.parametrize("name", PRODUCER_CALLS)
def test_producer_call_keeps_its_timeout(sim: SimNetwork, name: str, fault: Fault) -> None:
    core = producer(sim)
    sim.run(core.send_soon("t", b"v"))
    sim.run(core.flush())
    fault(sim)
    core.send("t", b"v")
    check_limit(sim, PRODUCER_CALLS[name](core))


def test_producer_close_keeps_its_timeout_and_logs_lost_records(
    sim: SimNetwork, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(sim.broker, "u")
    core = producer(sim)
    for topic in ("t", "u"):
        sim.run(core.send_soon(topic, b"v"))
    sim.run(core.flush())
    fault(sim)
    for topic in ("t", "u", "u"):
        assert core.send(topic, b"w") is not None
    blocked = Deferred.fromCoroutine(core.send_soon("unknown", b"x"))
    blocked.addErrback(lambda failure: failure.trap(PlogError))
    before_s = sim.now_s()
    sim.run(core.close(LIMIT_S))
    assert sim.now_s() - before_s <= LIMIT_S + _SLACK_S
    lost = "closed a producer before 4 records were acknowledged (t: 1, u: 2, unknown: 1)"
    assert lost in caplog.messages


def test_full_memory_keeps_max_block_ms(sim: SimNetwork, fault: Fault) -> None:
    core = producer(sim, buffer_memory=32_768, batch_size=16_384)
    sim.run(core.send_soon("t", b"v"))
    sim.run(core.flush())
    fault(sim)
    while core.send("t", bytes(1000)) is not None:
        pass
    check_limit(sim, core.send_soon("t", bytes(1000)))


def test_init_transactions_keeps_its_timeout(sim: SimNetwork, fault: Fault) -> None:
    core = producer(sim, transactional_id="x")
    fault(sim)
    check_limit(sim, core.init_transactions(LIMIT_S))


def test_call_with_short_deadline_keeps_the_connection_open(sim: SimNetwork) -> None:
    cluster = Cluster(sim, AdminSettings(bootstrap_servers=sim.bootstrap_servers))
    [node] = sim.run(cluster.refresh(())).brokers
    connection = sim.run(cluster.connection(node))
    sim.deaf = True
    hurried = cluster.ask_node(
        node, DescribeClusterRequest(), DescribeClusterResponse, deadline=cluster.deadline(1)
    )
    with pytest.raises(RequestTimedOut, match="did not respond to DescribeCluster within 1 s"):
        sim.run(hurried)
    assert connection.is_open
    sim.advance(31_000)
    assert not connection.is_open, "request.timeout.ms is the limit of the connection"


def test_connection_attempt_outlives_the_call_that_started_it(sim: SimNetwork) -> None:
    cluster = Cluster(sim, AdminSettings(bootstrap_servers=sim.bootstrap_servers))
    sim.on_request = None
    [node] = sim.run(cluster.refresh(())).brokers
    slow = sim.connect

    async def connect(*arguments: Any, **options: Any) -> Any:
        await sim.sleep(2)
        return await slow(*arguments, **options)

    sim.connect = connect  # type: ignore[method-assign]
    sim.drop_all()
    with pytest.raises(RequestTimedOut, match=r"cannot connect to .* within 1\.5 s"):
        sim.run(cluster.connection(node, deadline=cluster.deadline(1.5)))
    sim.run(cluster.connection(node, deadline=cluster.deadline(0.75)))


def test_last_failure_is_raised_at_the_deadline(sim: SimNetwork) -> None:
    cluster = Cluster(sim, AdminSettings(bootstrap_servers=sim.bootstrap_servers))
    sim.refuses = True
    before_s = sim.now_s()
    with pytest.raises(ConnectionFailed, match=r"refused \(tried for 2 s\)"):
        sim.run(cluster.refresh((), deadline=cluster.deadline(2)))
    assert sim.now_s() - before_s == pytest.approx(2)


def test_deadline_without_limit_is_never_over(sim: SimNetwork) -> None:
    deadline = Deadline(sim, float("inf"))
    assert deadline.wait_s is None
    assert not deadline.is_over
    assert Deadline(sim, 0).is_over
    assert Deadline(sim, 2).wait_s == pytest.approx(2)
