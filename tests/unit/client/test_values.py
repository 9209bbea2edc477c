"""Representation, pickling and copying of clients, futures, errors and records."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from typing import Any

import pytest

import plog.client.errors
import plog.errors
from plog.client.errors import (
    ConfigError,
    IllegalState,
    KafkaError,
    NoOffsetForPartition,
    SerializationFailed,
)
from plog.client.faces import asyncio as asyncio_face
from plog.client.faces import blocking
from plog.client.faces import twisted as twisted_face
from plog.client.values import ConsumerRecord, RecordMetadata
from plog.records.batch import TimestampType
from plog.types import TopicPartition
from tests.unit.client.producer.producer_site import ready

FACES = (blocking, asyncio_face, twisted_face)
T7 = TopicPartition("t", 7)
RECORD = ConsumerRecord("t", 7, 5, 1, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"),), 0)

ERRORS: list[Exception] = [
    ConfigError(["a is wrong", "b is, too"], ["c is doubtful"]),
    SerializationFailed("no text", T7, 5),
    NoOffsetForPartition("nothing", [T7]),
    *(
        kind("what, where and what to do")
        for module in (plog.client.errors, plog.errors)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, plog.errors.PlogError) and kind is not ConfigError
    ),
]


def _pickled(value: Any) -> Any:
    """Return `value` as another process would receive it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # Our own data.


@pytest.mark.parametrize(
    ("face", "name"),
    [(blocking, "plog"), (asyncio_face, "plog.aio"), (twisted_face, "plog.twisted")],
)
def test_client_repr_names_class_client_id_and_servers(face: Any, name: str) -> None:
    admin = face.Admin(bootstrap_servers=["a:1", "b:2"], client_id="billing")
    assert repr(admin) == f"<{name}.Admin 'billing' at a:1,b:2>"
    assert repr(face.Admin(bootstrap_servers="a")) == f"<{name}.Admin at a>"
    assert repr(face.Admin(bootstrap_controllers="c:9")) == f"<{name}.Admin at c:9>"


def test_closed_client_repr_says_closed() -> None:
    producer = blocking.Producer(bootstrap_servers="a:1")
    producer.close()
    assert repr(producer) == "<plog.Producer at a:1, closed>"


@pytest.mark.parametrize("face", FACES)
def test_client_cannot_be_pickled_or_copied(face: Any) -> None:
    admin = face.Admin(bootstrap_servers="a:1")
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied; create a client in"):
            attempt(admin)


def test_handle_repr_shows_outcome_of_its_record() -> None:
    site = ready(linger_ms=60_000)
    [handle] = site.sent(b"v")
    assert repr(handle) == "<SendHandle for page-views-0: pending>"
    site.flush()
    assert repr(handle) == "<SendHandle for page-views-0: offset 0>"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_can_be_pickled(error: Exception) -> None:
    for other in (_pickled(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), vars(other)) == (str(error), vars(error))


def test_record_can_be_pickled_compared_and_hashed() -> None:
    other = _pickled(RECORD)
    assert other == RECORD
    assert len({other, RECORD, copy.deepcopy(RECORD)}) == 1


def test_record_has_topic_partition() -> None:
    assert RECORD.topic_partition == T7
    assert RecordMetadata("t", 7, 0, 0, 0, 0).topic_partition == T7


def test_asyncio_client_is_refused_in_another_event_loop() -> None:
    producer = asyncio_face.Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=0)

    async def use() -> None:
        with pytest.raises(KafkaError):
            await producer.send("t", b"v")

    async def end() -> None:
        await producer.close()

    with asyncio.Runner() as first:
        first.run(use())
        for call in (use(), end()):
            with pytest.raises(IllegalState, match="belongs to another event loop, the one in"):
                asyncio.run(call)
        first.run(end())
    assert "closed" in repr(producer)


def test_unclosed_client_raises_resource_warning() -> None:
    async def forget() -> None:
        admin = asyncio_face.Admin(bootstrap_servers="127.0.0.1:1")
        await admin.__aenter__()
        with pytest.warns(ResourceWarning, match=r"<plog.aio.Admin .* was not closed; await"):
            del admin

    asyncio.run(forget())
