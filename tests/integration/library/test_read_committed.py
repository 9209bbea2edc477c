"""isolation.level on Apache Kafka, with transactional producers of plog and of other libraries.

plog's consumer is compared with the outcomes that the producers report, and with Java's consumer on
the same partition: records, positions, end offsets and lags.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import plog
from plog.client.simple import SimpleConsumer
from plog.errors import RequestTimedOut, UnstableOffsetCommit
from tests.helpers.client.faces import NAMES, open_face
from tests.helpers.client.plog_command import Plog
from tests.helpers.client.transactions import (
    ConfluentTransactions,
    JavaTransactions,
    PlogTransactions,
    Refused,
    Sight,
    Transactions,
)
from tests.helpers.programs import confluent
from tests.helpers.programs.kafka_tools import KafkaTools
from tests.integration.client_servers import Server

LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def server(kafka_servers: dict[str, Server]) -> Server:
    return kafka_servers["kafka"]


@pytest.fixture(scope="module")
def java(server: Server, kafka_tools: KafkaTools) -> Iterator[JavaTransactions]:
    address = server.settings["bootstrap_servers"]
    with kafka_tools.start("programs.Transactions", address) as process:
        yield JavaTransactions(process)


@pytest.fixture(scope="module")
def librdkafka(server: Server) -> ConfluentTransactions:
    return ConfluentTransactions(server.settings["bootstrap_servers"])


@pytest.fixture(scope="module")
def of_plog(server: Server) -> Iterator[PlogTransactions]:
    with open_face("blocking") as face:
        yield PlogTransactions(face, server.settings["bootstrap_servers"])


@pytest.fixture(params=["librdkafka", "java", "of_plog"])
def library(request: pytest.FixtureRequest) -> Transactions:
    """The library whose transactional producers the test uses."""
    library: Transactions = request.getfixturevalue(request.param)
    return library


def new_topic(server: Server) -> str:
    name = f"transactions-{uuid.uuid4().hex[:12]}"
    with plog.Admin(**server.settings) as admin:
        admin.create_topic(name, partitions=1)
    return name


@pytest.fixture
def topic(server: Server) -> str:
    return new_topic(server)


class ScriptedWriter:
    """Writes transactions to a topic by a script, and knows which records a consumer must see.

    A word of the script is a producer's letter and its action: ``a{`` begins, ``a+`` commits,
    ``a-`` aborts, ``a3`` sends three records. A number alone sends that many records outside
    transactions.
    """

    def __init__(self, server: Server, topic: str, libraries: dict[str, Transactions]) -> None:
        self.topic = topic
        self.all: list[tuple[int, str]] = []
        self.moment_ms = 0
        """The time when the last word of the script began."""
        self._visible: list[tuple[int, str]] = []
        self._pending: dict[str, list[tuple[int, str]]] = {}
        self._settings = server.settings
        self._libraries = libraries
        for letter, library in libraries.items():
            library.open(f"{letter}-{topic}")

    @property
    def stable_end(self) -> int | None:
        """The first offset of the oldest open transaction, or None."""
        return min((records[0][0] for records in self._pending.values() if records), default=None)

    def at(self, level: str, offset: int = 0) -> list[tuple[int, str]]:
        """Return the records that a consumer must see from `offset` on."""
        records = self.all
        if level == "read_committed":
            end = self.stable_end
            records = sorted(one for one in self._visible if end is None or one[0] < end)
        return [record for record in records if record[0] >= offset]

    def run(self, script: str) -> None:
        """Execute the words of `script`."""
        with plog.Producer(linger_ms=0, **self._settings) as plain:
            for word in script.split():
                self.moment_ms = int(time.time() * 1000)
                if word.isdigit():
                    for _ in range(int(word)):
                        value = f"plain-{len(self.all)}"
                        offset = plain.send(self.topic, value.encode()).result(60).offset
                        self._visible.append((offset, value))
                        self.all.append((offset, value))
                else:
                    self._act(word[0], word[1:])

    def _act(self, letter: str, action: str) -> None:
        library, name = self._libraries[letter], f"{letter}-{self.topic}"
        match action:
            case "{":
                library.begin(name)
                self._pending[letter] = []
            case "+":
                library.commit(name)
                self._visible += self._pending.pop(letter)
            case "-":
                library.abort(name)
                del self._pending[letter]
            case _:
                for _ in range(int(action)):
                    value = f"{letter}-{len(self.all)}"
                    record = (library.send(name, self.topic, value), value)
                    self._pending[letter].append(record)
                    self.all.append(record)


@pytest.fixture(scope="module")
def history(
    server: Server,
    librdkafka: ConfluentTransactions,
    java: JavaTransactions,
    of_plog: PlogTransactions,
) -> ScriptedWriter:
    """Committed, aborted and open transactions of three producers, which overlap."""
    writer = ScriptedWriter(server, new_topic(server), {"a": librdkafka, "b": java, "c": of_plog})
    writer.run(
        "a{ a3 a+ a{ a3 a- 2 a{ b{ a2 b2 a1 b- a1 b{ b1 a- b1 b+ a{ a1 a+ 1 b{ b1 b- a{ a2 a-"
    )
    writer.run("c{ c2 b{ b1 c1 c+ b+ c{ c1 1 c- c{ c1 c+")
    writer.run("a{ a2 1 b{ b2 b+")
    return writer


def observe(consumer: Any, topic: str, moment_ms: int) -> Sight:
    """Read the whole topic with plog's `consumer`; return what it sees."""
    partition = plog.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    [end] = consumer.end_offsets([partition]).values()
    records = read_to(consumer, partition, end)
    [found] = consumer.offsets_for_times({partition: moment_ms}).values()
    return Sight(
        end,
        consumer.position(partition),
        consumer.lag(partition),
        -1 if found is None else found.offset,
        records,
    )


def read_to(consumer: Any, partition: plog.TopicPartition, end: int) -> list[tuple[int, str]]:
    records: list[tuple[int, str]] = []
    deadline_s = time.monotonic() + 60
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline_s, (
            f"position {consumer.position(partition)} did not reach {end}: {records}"
        )
        for record in consumer.consume(1, timeout_s=0.1):
            records.append((record.offset, record.value.decode()))
    return records


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bytes_per_fetch", [1, 1 << 20])
def test_consumer_sees_what_javas_consumer_sees(
    server: Server,
    java: JavaTransactions,
    history: ScriptedWriter,
    level: str,
    bytes_per_fetch: int,
) -> None:
    """With the smaller size a fetch returns one batch, with the larger size all batches."""
    with plog.Consumer(
        isolation_level=level,
        max_partition_fetch_bytes=bytes_per_fetch,
        fetch_max_wait_ms=50,
        **server.settings,
    ) as consumer:
        ours = observe(consumer, history.topic, history.moment_ms)
    assert ours.records == history.at(level)
    assert ours == java.look(level, history.topic, history.moment_ms)
    assert (ours.end == history.stable_end) is (level == "read_committed")


@pytest.mark.parametrize("level", LEVELS)
def test_librdkafka_sees_the_expected_records(
    server: Server, history: ScriptedWriter, level: str
) -> None:
    with confluent.consumer(
        server.settings["bootstrap_servers"], isolation_level=level
    ) as consumer:
        place = confluent.confluent_kafka.TopicPartition(history.topic, 0, 0)
        consumer.assign([place])
        messages = confluent.until_end(consumer)
        [_, end] = consumer.get_watermark_offsets(place, timeout=60)
    records = [(message.offset(), message.value().decode()) for message in messages]
    assert records == history.at(level)
    with plog.Consumer(isolation_level=level, **server.settings) as ours:
        assert observe(ours, history.topic, 0).end == end


@pytest.mark.parametrize("name", NAMES)
def test_each_api_sees_the_expected_records(
    server: Server, history: ScriptedWriter, name: str
) -> None:
    with open_face(name) as face:
        for level in LEVELS:
            consumer = face.consumer(
                isolation_level=level, max_poll_records=1, fetch_max_wait_ms=50, **server.settings
            )
            assert observe(consumer, history.topic, 0).records == history.at(level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bytes_per_fetch", [1, 1 << 20])
def test_arrow_batches_contain_the_same_records(
    server: Server, history: ScriptedWriter, level: str, bytes_per_fetch: int
) -> None:
    partition = plog.TopicPartition(history.topic, 0)
    with plog.Consumer(
        isolation_level=level,
        max_partition_fetch_bytes=bytes_per_fetch,
        fetch_max_wait_ms=50,
        auto_offset_reset="earliest",
        **server.settings,
    ) as consumer:
        consumer.assign([partition])
        [end] = consumer.end_offsets([partition]).values()
        records = []
        while consumer.position(partition) < end:
            batch = consumer.consume_arrow(3, timeout_s=0.1)
            for row in [] if batch is None else batch.to_pylist():
                records.append((row["offset"], row["value"].decode()))
    assert records == history.at(level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bytes_per_fetch", [1, 1 << 20])
def test_any_range_can_be_read(
    server: Server, history: ScriptedWriter, level: str, bytes_per_fetch: int
) -> None:
    partition = plog.TopicPartition(history.topic, 0)
    with SimpleConsumer(
        isolation_level=level, max_partition_fetch_bytes=bytes_per_fetch, **server.settings
    ) as consumer:
        [end] = consumer.end_offsets([partition]).values()
        for start in range(end):
            expected = history.at(level, start)
            records = consumer.records(partition, start, end)
            assert [(record.offset, record.value.decode()) for record in records] == expected
            columns = consumer.arrow_batches(partition, start, end, max_records=2)
            rows = [row for batch in columns for row in batch.to_pylist()]
            assert [(row["offset"], row["value"].decode()) for row in rows] == expected


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bytes_per_fetch", [1, 1 << 20])
def test_seek_can_lead_into_any_transaction(
    server: Server, history: ScriptedWriter, level: str, bytes_per_fetch: int
) -> None:
    partition = plog.TopicPartition(history.topic, 0)
    with plog.Consumer(
        isolation_level=level,
        max_partition_fetch_bytes=bytes_per_fetch,
        fetch_max_wait_ms=5,
        **server.settings,
    ) as consumer:
        consumer.assign([partition])
        [end] = consumer.end_offsets([partition]).values()
        for offset in range(end):
            consumer.seek(partition, offset)
            expected = history.at(level, offset)[:1]
            assert read_to(consumer, partition, expected[0][0] + 1 if expected else end) == expected


def test_console_consumer_prints_the_expected_records(
    server: Server, history: ScriptedWriter
) -> None:
    shown = Plog(server.settings["bootstrap_servers"]).run(
        "console-consumer", "--topic", history.topic, "--from-beginning",
        "--isolation-level", "read_committed", "--timeout-ms", "1500",
    )  # fmt: skip
    assert shown.decode().split() == [value for _, value in history.at("read_committed")]


# -- transactions that end while a consumer reads ---------------------------------------------


def committed_reader(server: Server, topic: str, **settings: Any) -> plog.Consumer:
    return plog.Consumer(
        topic,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        **settings,
        **server.settings,
    )


def values(consumer: plog.Consumer, count: int) -> list[str]:
    """Return the next `count` values; check that no other record follows for a while."""
    found: list[str] = []
    while len(found) < count:
        records = consumer.consume(timeout_s=60)
        assert records, f"received only {found}"
        found += [record.value.decode() for record in records]
    assert consumer.poll(0.2) is None
    return found


def test_consumer_waits_at_an_open_transaction_until_it_ends(
    server: Server, library: Transactions, topic: str
) -> None:
    library.open(topic)
    with committed_reader(server, topic) as consumer, plog.Producer(**server.settings) as plain:
        library.begin(topic)
        library.send(topic, topic, "aborted")
        plain.send(topic, b"plain").result(60)
        assert values(consumer, 0) == []
        library.abort(topic)
        assert values(consumer, 1) == ["plain"]
        library.begin(topic)
        library.send(topic, topic, "committed")
        plain.send(topic, b"behind").result(60)
        assert values(consumer, 0) == []
        library.commit(topic)
        assert values(consumer, 2) == ["committed", "behind"]


def test_records_of_a_fenced_producer_are_not_seen(
    server: Server, library: Transactions, topic: str
) -> None:
    library.open(topic)
    library.begin(topic)
    library.send(topic, topic, "from-the-first")
    library.open(topic)  # A second producer with the same transactional.id fences the first.
    with pytest.raises(Refused):
        library.commit(f"old-{topic}")
    library.begin(topic)
    library.send(topic, topic, "from-the-second")
    library.commit(topic)
    with committed_reader(server, topic) as consumer:
        assert values(consumer, 1) == ["from-the-second"]


def test_records_of_a_transaction_that_timed_out_are_not_seen(
    server: Server, librdkafka: ConfluentTransactions, topic: str
) -> None:
    librdkafka.open(topic, timeout_ms=1000)
    librdkafka.begin(topic)
    librdkafka.send(topic, topic, "too-late")
    with committed_reader(server, topic) as consumer, plog.Producer(**server.settings) as plain:
        plain.send(topic, b"behind it").result(60)
        assert values(consumer, 1) == ["behind it"]
    with pytest.raises(Refused):
        librdkafka.commit(topic)


def test_committed_offset_of_an_open_transaction_is_awaited(
    server: Server, library: Transactions, topic: str
) -> None:
    """Otherwise the records before it would be processed twice (KIP-447)."""
    partition = plog.TopicPartition(topic, 0)
    library.open(topic)
    with plog.Consumer(group_id=topic, **server.settings) as consumer:
        library.begin(topic)
        library.offsets(topic, topic, topic, 3)
        with pytest.raises((UnstableOffsetCommit, RequestTimedOut)):
            consumer.committed([partition], timeout_s=0.3)
        library.commit(topic)
        [committed] = consumer.committed([partition]).values()
        assert committed is not None
        assert committed.offset == 3
        library.begin(topic)
        library.offsets(topic, topic, topic, 9)
        library.abort(topic)
        [committed] = consumer.committed([partition]).values()
        assert committed is not None
        assert committed.offset == 3


def test_group_commits_past_aborted_records(
    server: Server, library: Transactions, topic: str
) -> None:
    partition = plog.TopicPartition(topic, 0)
    library.open(topic)
    library.begin(topic)
    library.send(topic, topic, "seen")
    library.commit(topic)
    library.begin(topic)
    library.send(topic, topic, "not-seen")
    library.abort(topic)
    with committed_reader(server, topic, group_id=topic) as consumer:
        assert values(consumer, 1) == ["seen"]
        consumer.commit()
        [committed] = consumer.committed([partition]).values()
        assert committed is not None
        assert committed.offset == 4
        assert consumer.lag(partition) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_transactions_look_as_to_java(
    server: Server,
    librdkafka: ConfluentTransactions,
    java: JavaTransactions,
    of_plog: PlogTransactions,
    topic: str,
    seed: int,
) -> None:
    chance = random.Random(seed)
    writer = ScriptedWriter(server, topic, {"a": librdkafka, "b": java, "c": of_plog})
    writer.run(" ".join(_random_script(chance)))
    for level in LEVELS:
        java_sight = java.look(level, topic, writer.moment_ms)
        assert java_sight.records == writer.at(level)
        for size in (1, 150, 400, 1 << 20):
            with plog.Consumer(
                isolation_level=level,
                max_partition_fetch_bytes=size,
                fetch_max_bytes=chance.choice([1, 1 << 20]),
                fetch_max_wait_ms=50,
                **server.settings,
            ) as consumer:
                assert observe(consumer, topic, writer.moment_ms) == java_sight
                for _ in range(5):
                    offset = chance.randrange(java_sight.end + 1)
                    consumer.seek(plog.TopicPartition(topic, 0), offset)
                    partition = plog.TopicPartition(topic, 0)
                    assert read_to(consumer, partition, java_sight.end) == writer.at(level, offset)


def _random_script(chance: random.Random) -> Iterator[str]:
    is_open: set[str] = set()
    for _ in range(60):
        letter = chance.choice("abc1")
        if letter == "1":
            yield str(chance.randrange(1, 3))
        elif letter not in is_open:
            is_open.add(letter)
            yield letter + "{"
            yield letter + "1"
        elif chance.random() < 0.5:
            yield letter + str(chance.randrange(1, 4))
        else:
            is_open.remove(letter)
            yield letter + chance.choice("+-")
