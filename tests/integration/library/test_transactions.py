"""plog's transactional producers on Apache Kafka: each API, both transaction versions, kills."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import plog
from plog.client.admin.brokers import FeatureUpdate
from plog.client.transactions.context_manager import AsyncTransaction
from plog.enums import UpgradeType
from plog.errors import UnsupportedVersion
from tests.helpers.client.faces import NAMES, open_face
from tests.helpers.eventually import eventually
from tests.helpers.programs import confluent
from tests.integration.client_servers import Server, server_of

ROUNDS = 8
COUNT = 3000
_PAUSE = threading.Event()


@pytest.fixture(scope="module")
def server(kafka_servers: dict[str, Server]) -> Server:
    return kafka_servers["kafka"]


@pytest.fixture
def topic(server: Server) -> str:
    return new_topic(server)


def new_topic(server: Server, partitions: int = 1) -> str:
    name = f"transactional-{uuid.uuid4().hex[:12]}"
    with plog.Admin(**server.settings) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def committed(server: Server, topic: str, level: str = "read_committed") -> list[str]:
    """Return all values that a consumer sees."""
    partition = plog.TopicPartition(topic, 0)
    with plog.Consumer(isolation_level=level, **server.settings) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        [end] = consumer.end_offsets([partition]).values()
        values: list[str] = []
        deadline_s = time.monotonic() + 60
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline_s, values
            values += [x.value.decode() for x in consumer.consume(timeout_s=0.1)]
    return values


def run_transactions(face: Any, server: Server, topic: str) -> None:
    """Commit, abort, commit a group's offsets, and fence the producer with a newer one."""
    partition = plog.TopicPartition(topic, 0)
    settings = {"transactional_id": topic, **server.settings}
    producer = face.producer(**settings)
    producer.init_transactions()
    for value, ending in (("a", "commit"), ("no", "abort"), ("b", "commit"), ("c", "commit")):
        producer.begin_transaction()
        producer.send(topic, value.encode(), partition=0)
        producer.flush()
        producer.send(topic, f"{value}2".encode(), partition=0)
        getattr(producer, f"{ending}_transaction")()
    consumer = face.consumer(topic, group_id=topic, auto_offset_reset="earliest", **server.settings)
    consumer.take(1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({partition: 1}, consumer.group_metadata())
    producer.commit_transaction()
    assert consumer.committed([partition])[partition].offset == 1
    producer.begin_transaction()
    unknown_member = plog.GroupMetadata(topic, 99, "unknown")
    with pytest.raises(plog.TransactionAbortable):
        producer.send_offsets_to_transaction({partition: 2}, unknown_member)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(topic, b"zombie", partition=0).result(60)
    face.producer(**settings).init_transactions()
    with pytest.raises(plog.ProducerFenced):
        producer.commit_transaction()
    assert consumer.committed([partition])[partition].offset == 1


@pytest.mark.parametrize("name", NAMES)
def test_each_api_has_transactions(server: Server, topic: str, name: str) -> None:
    with open_face(name) as face:
        run_transactions(face, server, topic)
    assert committed(server, topic) == ["a", "a2", "b", "b2", "c", "c2"]


def test_librdkafka_sees_committed_records(server: Server, topic: str) -> None:
    with open_face("blocking") as face:
        run_transactions(face, server, topic)
    messages = confluent.read(
        server.settings["bootstrap_servers"], topic, isolation_level="read_committed"
    )
    assert [x.value().decode() for x in messages] == ["a", "a2", "b", "b2", "c", "c2"]


@contextmanager
def version_of_transactions(server: Server, level: int) -> Iterator[None]:
    """Set the cluster's transaction version within the block."""
    with plog.Admin(**server.settings) as admin:
        before = admin.describe_features().finalized["transaction.version"].highest
        change = UpgradeType.SAFE_DOWNGRADE
        admin.update_features(
            {"transaction.version": FeatureUpdate(level=level, upgrade_type=change)}
        ).raise_first()
        try:
            yield
        finally:
            change = UpgradeType.UPGRADE
            admin.update_features(
                {"transaction.version": FeatureUpdate(level=before, upgrade_type=change)}
            ).raise_first()


def test_transaction_version_1_behaves_the_same(server: Server, topic: str) -> None:
    """As in a cluster older than Kafka 4.0; the cluster is then upgraded while a producer runs."""
    with open_face("blocking") as face:
        with version_of_transactions(server, 1):
            run_transactions(face, server, topic)
            producer = face.producer(transactional_id=f"{topic}-2", **server.settings)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"d", partition=0)
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"e", partition=0)
        producer.commit_transaction()
    assert committed(server, topic) == ["a", "a2", "b", "b2", "c", "c2", "d", "e"]


def test_with_block_is_a_transaction(server: Server, topic: str) -> None:
    with plog.Producer(transactional_id=topic, **server.settings) as producer:
        producer.init_transactions()
        with producer.transaction() as same:
            same.send(topic, b"a")

        def fail(value: bytes) -> None:
            with producer.transaction():
                producer.send(topic, b"no").result(60)
                producer.send(topic, value)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(b"no")
        with pytest.raises(plog.RecordTooLarge):
            fail(bytes(2 << 20))
        with producer.transaction():
            producer.send(topic, b"b")
    assert committed(server, topic) == ["a", "b"]


@pytest.mark.parametrize("name", ["aio", "twisted"])
def test_async_with_block_is_a_transaction(server: Server, topic: str, name: str) -> None:
    with open_face(name) as face:
        producer = face.producer(transactional_id=topic, **server.settings)
        producer.init_transactions()

        async def work() -> None:
            block: AsyncTransaction[Any] = client.transaction()
            async with block:
                await client.send(topic, b"a")
            try:
                async with client.transaction():
                    await client.send(topic, b"no")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass

        client = producer._client
        face.wait(lambda: _as_result(work(), name))
    assert committed(server, topic) == ["a"]


def _as_result(coroutine: Any, name: str) -> Any:
    if name == "aio":
        return coroutine
    from twisted.internet.defer import Deferred

    return Deferred.fromCoroutine(coroutine)


def test_transaction_that_times_out_is_aborted_and_can_be_retried(
    server: Server, topic: str
) -> None:
    with plog.Producer(
        transactional_id=topic, transaction_timeout_ms=1000, **server.settings
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late").result(60)
        with (
            plog.Consumer(
                topic,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                **server.settings,
            ) as consumer,
            plog.Producer(**server.settings) as plain,
        ):
            plain.send(topic, b"later").result(60)
            assert [x.value for x in consumer.consume(timeout_s=60)] == [b"later"]
        with pytest.raises(plog.TransactionAbortable, match=r"transaction.timeout.ms=1000"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"a")
    assert committed(server, topic) == ["later", "a"]


def test_too_long_transaction_timeout_is_refused(server: Server, topic: str) -> None:
    settings = {"transaction_timeout_ms": 10_000_000, **server.settings}
    with (
        plog.Producer(transactional_id=topic, **settings) as producer,
        pytest.raises(plog.KafkaError, match=r"transaction.max.timeout.ms"),
    ):
        producer.init_transactions()


def test_plog_reports_that_it_has_no_transactions(request: pytest.FixtureRequest) -> None:
    settings = server_of(request, "plog").settings
    with (
        plog.Producer(transactional_id="shop", **settings) as producer,
        pytest.raises(UnsupportedVersion, match="does not support transactions"),
    ):
        producer.init_transactions()


def kill_in_transaction(process: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Kill the process soon after it reports a transaction, or after 3 s without one."""
    assert process.stdout is not None
    _PAUSE.wait(chance.uniform(0.2, 2))
    os.set_blocking(process.stdout.fileno(), False)
    process.stdout.read()
    select.select([process.stdout], [], [], 3)
    _PAUSE.wait(chance.choice([0, 0, 0.005, 0.02]))
    process.kill()
    process.communicate()


@pytest.mark.long
@pytest.mark.parametrize("level", [1, 2])
def test_processes_killed_at_any_time_process_each_record_once(server: Server, level: int) -> None:
    source, target = new_topic(server, 3), new_topic(server)
    chance = random.Random(level)

    def start(number: int) -> subprocess.Popen[bytes]:
        address = server.settings["bootstrap_servers"]
        command = [
            sys.executable,
            "-m",
            "tests.integration.library.transforming",
            address,
            source,
            target,
        ]
        return subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE)

    with version_of_transactions(server, level) if level == 1 else _unchanged_version():
        processes = [start(number) for number in range(2)]
        try:
            with plog.Producer(**server.settings) as producer:
                for number in range(COUNT):
                    producer.send(source, b"%d" % number)
                    if number % (COUNT // ROUNDS) == 0:
                        producer.flush()
                        victim = chance.randrange(len(processes))
                        kill_in_transaction(processes[victim], chance)
                        processes[victim] = start(victim)
            eventually(lambda: len(committed(server, target)) >= COUNT, "all results")
            _PAUSE.wait(3)  # Duplicates would arrive in this time.
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    assert sorted(map(int, committed(server, target))) == [2 * x for x in range(COUNT)]
    assert len(committed(server, target, "read_uncommitted")) > COUNT, (
        "no process was killed within a transaction"
    )


@contextmanager
def _unchanged_version() -> Iterator[None]:
    yield
