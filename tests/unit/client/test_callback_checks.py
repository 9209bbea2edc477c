"""Faces check the application objects that a client calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from twisted.internet.task import Clock

from plog import HashPartitioner, ProducerInterceptor, RebalanceListener
from plog.client.assignors import RangeAssignor
from plog.client.callback_checks import check_assignors
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener, check_listener
from plog.client.faces import asyncio as asyncio_face
from plog.client.faces import blocking
from plog.client.faces import twisted as twisted_face
from plog.client.faces.polling_consumer import PollingConsumer

FACES = [
    pytest.param(blocking, {}, id="blocking"),
    pytest.param(asyncio_face, {}, id="aio"),
    pytest.param(twisted_face, {"reactor": Clock()}, id="twisted"),
]


class Misspelt:
    def on_partition_assigned(self, partitions: object) -> None: ...


class OnlyOne:
    def on_partitions_assigned(self, partitions: object) -> None: ...


class NotCallable:
    on_partitions_assigned = on_partitions_revoked = 5


class NoClose:
    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None: ...


WRONG_LISTENERS = [Misspelt(), OnlyOne(), NotCallable(), 5, "t", print, RebalanceListener]
WRONG_OF_PRODUCERS: dict[str, list[Any]] = {
    "key_serializer": [5, "utf-8"],
    "value_serializer": [object()],
    "partitioner": [5, "murmur2", object(), HashPartitioner],
    "interceptors": [5, "x", [NoClose()], [5], [ProducerInterceptor], NoClose()],
}
WRONG_OF_CONSUMERS: dict[str, list[Any]] = {
    "listener": WRONG_LISTENERS,
    "key_deserializer": [5],
    "value_deserializer": ["json"],
    "assignors": [5, "range", [5], [object()], [OnlyOne]],
}


def cases(wrong: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in wrong.items()
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(("name", "value"), cases(WRONG_OF_PRODUCERS))
@pytest.mark.parametrize(("face", "options"), FACES)
def test_producer_refuses_wrong_object_naming_the_parameter(
    face: Any, options: dict[str, Any], name: str, value: Any
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\b.* is "):
        face.Producer(bootstrap_servers="localhost:9092", **options, **{name: value})


@pytest.mark.parametrize(("name", "value"), cases(WRONG_OF_CONSUMERS))
@pytest.mark.parametrize(("face", "options"), FACES)
def test_consumer_refuses_wrong_object_naming_the_parameter(
    face: Any, options: dict[str, Any], name: str, value: Any
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\b.* is "):
        face.Consumer("t", bootstrap_servers="localhost:9092", **options, **{name: value})


@pytest.mark.parametrize("listener", WRONG_LISTENERS)
def test_wrong_listener_is_refused(listener: object) -> None:
    with pytest.raises(TypeError, match=r"^listener is .*(on_partitions_|an instance)"):
        check_listener(listener)


def test_refused_listener_leaves_the_subscription_as_it_was(make_consumer: Any) -> None:
    consumer: PollingConsumer = make_consumer()
    consumer.subscribe(["a"])
    with pytest.raises(TypeError, match="listener"):
        consumer.subscribe(["b"], listener=Misspelt())  # type: ignore[arg-type]
    assert consumer.subscription == {"a"}


@pytest.fixture
def make_consumer() -> Callable[[], PollingConsumer]:
    from plog.client.network.cluster import Cluster
    from plog.client.settings import ConsumerSettings
    from tests.helpers.client.client_on_sim_network import SimNetwork

    def make() -> PollingConsumer:
        sim = SimNetwork()
        settings = ConsumerSettings.from_options(bootstrap_servers=sim.bootstrap_servers)
        return PollingConsumer(Cluster(sim, settings), sim, settings)

    return make


def test_valid_objects_are_accepted() -> None:
    class Two:
        def on_partitions_revoked(self, partitions: object) -> None: ...
        def on_partitions_assigned(self, partitions: object) -> None: ...

    class Mine(RangeAssignor):
        name = "mine"

    listener = Two()
    assert check_listener(listener) is listener
    assert check_listener(None) is None
    made = check_assignors(["range", Mine, Mine()][:2])
    assert made is not None
    assert [one.name for one in made] == ["range", "mine"]


@pytest.mark.parametrize("callback", [5, "x"])
def test_commit_callback_that_cannot_be_called_is_refused(
    make_consumer: Any, callback: object
) -> None:
    with pytest.raises(TypeError, match="callback is"):
        make_consumer().commit_async({}, callback)


@pytest.mark.parametrize("face", [blocking, asyncio_face, twisted_face])
def test_listener_parameters_are_annotated(face: Any) -> None:
    hints = get_type_hints(PollingConsumer.subscribe)
    assert hints["listener"] == ConsumerRebalanceListener | None
    parameters = face.Consumer.__init__.__annotations__
    assert parameters["listener"] == "ConsumerRebalanceListener | None"
