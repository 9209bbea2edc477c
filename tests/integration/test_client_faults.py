"""What users of the client library meet when things go wrong around it, told so that they can act.

On a real process; the pure rules have their tests beside the engine's. Faults come from the broker
fixture's hooks, from signals, and from bytes changed on the disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

import plog
import plog.aio
from plog.client.errors import (
    CorruptRecords,
    DeliveryTimedOut,
    ForkedError,
    IllegalState,
    WrongThread,
)
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.eventually import eventually


@pytest.fixture
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    made = plog_broker_factory({"group.initial.rebalance.delay.ms": "0"}, kind="process")
    yield made
    if made.is_running:
        made.stop()


def read_all(broker: BrokerProcess, topic: str, count: int) -> list[plog.ConsumerRecord]:
    with plog.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        records: list[plog.ConsumerRecord] = []
        while len(records) < count:
            some = consumer.consume(timeout_s=30)
            assert some, f"only {len(records)} of {count}"
            records += some
        assert consumer.poll(0.3) is None, "more than was sent"
        return records


def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    broker: BrokerProcess,
) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2000) as producer:
        sent = []
        for number in range(3000):
            sent.append(producer.send("t", b"%d" % number, partition=0))
            if number in (1000, 2000):
                broker.kill()
                broker.restart()
        offsets = [future.result(60).offset for future in sent]
    records = read_all(broker, "t", 3000)
    assert [int(record.value) for record in records] == list(range(3000))
    assert [record.offset for record in records] == offsets


def test_a_lost_acknowledgement_doubles_nothing(broker: BrokerProcess) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"0").result(30)
        lost = broker.hooks.drop("Produce", after=True)
        assert producer.send("t", b"1").result(30).offset == 1
        assert lost.hits == 1
    assert [record.value for record in read_all(broker, "t", 2)] == [b"0", b"1"]


def test_a_connection_reset_in_a_fetch_skips_and_repeats_nothing(broker: BrokerProcess) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(500):
            producer.send("t", b"%d" % number)
    for after in (False, True):
        lost = broker.hooks.drop("Fetch", after=after)
        records = read_all(broker, "t", 500)
        assert [int(record.value) for record in records] == list(range(500))
        assert lost.hits == 1


def test_a_group_goes_on_when_its_broker_has_restarted(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with (
        plog.Producer(bootstrap_servers=servers) as producer,
        plog.Consumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send("t", b"0").result(30)
        assert consumer.consume(timeout_s=30)[0].value == b"0"
        consumer.commit()
        broker.kill()
        broker.restart()
        producer.send("t", b"1").result(60)
        assert consumer.consume(timeout_s=60)[0].value == b"1"
        consumer.commit()
        [committed] = consumer.committed(consumer.assignment).values()
        assert committed is not None
        assert committed.offset == 2


def test_nobody_answers_for_too_long(broker: BrokerProcess) -> None:
    with plog.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=1000,
    ) as producer:
        producer.send("t", b"0").result(30)
        broker.kill()
        with pytest.raises(DeliveryTimedOut, match=r"t-0.*delivery\.timeout\.ms"):
            producer.send("t", b"1").result(30)


def test_a_damaged_batch_is_named_and_can_be_passed(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for number in range(3):
            producer.send("t", b"value %d" % number).result(30)
    broker.stop()
    _damage(broker.data_dir / "t-0" / "00000000000000000000.log", b"value 1")
    broker.start()
    with plog.Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert consumer.consume(1, timeout_s=30)[0].value == b"value 0"
        with pytest.raises(CorruptRecords, match=r"t-0, offsets 1.*seek to 2"):
            consumer.consume(1, timeout_s=30)
        consumer.seek(plog.TopicPartition("t", 0), 2)
        assert consumer.consume(1, timeout_s=30)[0].value == b"value 2"


def _damage(path: Path, text: bytes) -> None:
    data = bytearray(path.read_bytes())
    position = data.index(text)
    data[position] ^= 1
    path.write_bytes(data)


def test_a_consumer_in_two_threads_is_refused(broker: BrokerProcess) -> None:
    with plog.Consumer("t", bootstrap_servers=broker.bootstrap_servers) as consumer:
        waiting = threading.Thread(target=lambda: _until_woken(consumer))
        waiting.start()
        eventually(lambda: consumer._depth, "use in the other thread")
        with pytest.raises(WrongThread, match="another thread"):
            consumer.consume(1, timeout_s=1)
        consumer.wakeup()
        waiting.join(30)
        assert not waiting.is_alive()
        assert consumer.consume(1, timeout_s=0.01) == []


def _until_woken(consumer: plog.Consumer) -> None:
    with pytest.raises(plog.WokenUp):
        consumer.consume(1, timeout_s=60)


def test_after_a_fork_the_child_makes_clients_of_its_own(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"parent").result(30)
        broker.hooks.delay("Produce", seconds=0.3)
        under_way = producer.send("t", b"on its way")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                producer.send("t", b"must not be sent")
            except ForkedError:
                assert isinstance(under_way.exception(1), ForkedError)
                with plog.Producer(bootstrap_servers=servers) as own:
                    own.send("t", b"child").result(30)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        producer.send("t", b"parent again").result(30)
    values = [record.value for record in read_all(broker, "t", 4)]
    assert sorted(values) == [b"child", b"on its way", b"parent", b"parent again"]


def test_a_callback_is_told_that_it_cannot_wait(broker: BrokerProcess) -> None:
    refused: Queue[type[Exception]] = Queue()
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def wait(*_: object) -> None:
            for call in (producer.send("t", b"2").result, producer.flush, producer.close):
                try:
                    call()
                except Exception as error:
                    refused.put(type(error))

        producer.send("t", b"1", on_delivery=wait).result(30)
        assert [refused.get(timeout=30) for _ in range(3)] == [IllegalState] * 3
        producer.send("t", b"3").result(30)


def test_a_task_that_is_cancelled_as_its_records_come_leaves_them_to_the_next(
    broker: BrokerProcess,
) -> None:
    servers = broker.bootstrap_servers

    async def read() -> list[bytes]:
        async with plog.aio.Consumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            waiting = asyncio.ensure_future(consumer.consume())
            await asyncio.sleep(0)
            announce = consumer._core.on_data

            def announce_and_cancel() -> None:
                has_data = consumer._core.has_data
                announce()
                if has_data:
                    waiting.cancel()

            consumer._core.on_data = announce_and_cancel
            with pytest.raises(asyncio.CancelledError):
                await waiting
            consumer._core.on_data = announce
            return [record.value for record in await consumer.consume(timeout_s=30)]

    with plog.Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"1").result(30)
    assert asyncio.run(read()) == [b"1"]


def test_a_future_that_is_cancelled_is_sent_all_the_same(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers

    async def send() -> None:
        async with plog.aio.Producer(bootstrap_servers=servers) as producer:
            await (await producer.send("t", b"0"))
            broker.hooks.delay("Produce", seconds=0.3)
            sent = await producer.send("t", b"1")
            waiting = asyncio.ensure_future(sent.result())
            asyncio.get_running_loop().call_soon(waiting.cancel)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await sent).offset == 1

    asyncio.run(send())
    with plog.Producer(bootstrap_servers=servers) as producer:
        future = producer.send("t", b"2")
        assert future.cancel() is False
        assert future.result(30).offset == 2
    assert len(read_all(broker, "t", 3)) == 3


def test_what_was_sent_leaves_at_the_end_of_the_process(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    pid = os.fork()
    if pid == 0:
        os.execv(
            os.sys.executable,
            [
                os.sys.executable,
                "-c",
                f"import plog; p = plog.Producer(bootstrap_servers={servers!r}, linger_ms=60000);"
                "[p.send('t', b'%d' % n) for n in range(100)]",
            ],
        )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(read_all(broker, "t", 100)) == 100
