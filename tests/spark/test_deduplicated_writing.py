"""Tasks and commits of a deduplicating stream against a broker, without Spark.

Attempts end wherever a test wants, which Spark could hardly be made to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Admin
from plog.client.values import ConsumerRecord
from plog.spark.options.sink_options import SinkOptions
from plog.spark.reader import worker_consumers
from plog.spark.sink import worker_producers
from plog.spark.sink.deduplicated_writing import (
    commit_batch,
    read_notes,
    reading_settings,
    write_task,
)
from plog.spark.sink.deduplication import BatchPlan, DeduplicationError, TaskOutcome
from plog.spark.sink.record_marks import BatchId
from plog.spark.sink.sink_notes import NOTES_TOPIC, CommitNote, NotedCommit
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.eventually import eventually

pyarrow = pytest.importorskip("pyarrow")

Batches = Iterator[Any]
BATCH = BatchId("query-1", 0)


class Interrupted(Exception):
    """The attempt of the task ends here."""


@pytest.fixture(autouse=True)
def _clients_of_the_worker() -> Iterator[None]:
    yield
    for producer in worker_producers._kept.values():
        producer.close()
    for consumer in worker_consumers._kept.values():
        consumer.close()
    worker_producers._kept.clear()
    worker_consumers._kept.clear()


class Sink:
    """An output with its notes, as one stream uses it."""

    def __init__(self, broker: BrokerProcess, name: str, topic: str | None) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.name = name
        self.runs = 0
        self.options = SinkOptions(
            client={"bootstrap.servers": self.bootstrap_servers, "linger.ms": "0"},
            topic=topic,
            deduplicate=name,
        )

    def last(self) -> NotedCommit:
        return read_notes(self.options, self.name).last

    def plan(self) -> BatchPlan:
        """Begin an execution of a batch, as the driver does."""
        self.runs += 1
        return BatchPlan(run=f"run {self.runs}", notes=read_notes(self.options, self.name))

    def write(
        self, *batches: Any, batch: BatchId = BATCH, task: int = 0, plan: BatchPlan | None = None
    ) -> TaskOutcome:
        """Run one attempt of a task, by default in an execution of its own."""
        plan = plan or self.plan()
        return write_task(self.options, self.name, batch, task, plan, iter(batches))

    def interrupt(
        self,
        *batches: Any,
        after: int,
        topic: str,
        batch: BatchId = BATCH,
        plan: BatchPlan | None = None,
    ) -> None:
        """Run an attempt that ends when the topic has `after` records."""

        def interrupted() -> Batches:
            yield from batches
            eventually(lambda: len(self.records(topic)) >= after, f"{after} records in {topic}")
            raise Interrupted

        plan = plan or self.plan()
        with pytest.raises(Interrupted):
            write_task(self.options, self.name, batch, 0, plan, interrupted())

    def commit(self, *outcomes: TaskOutcome) -> None:
        commit_batch(self.options, self.name, outcomes, read_notes(self.options, self.name))

    def records(self, topic: str) -> list[ConsumerRecord]:
        with SimpleConsumer(bootstrap_servers=self.bootstrap_servers) as consumer:
            partitions = [
                TopicPartition(topic, one.index) for one in consumer.partitions_for(topic)
            ]
            starts = consumer.beginning_offsets(partitions)
            ends = consumer.end_offsets(partitions)
            return [
                record
                for one in partitions
                for record in consumer.records(one, starts[one], ends[one])
            ]

    def values(self, topic: str) -> Counter[bytes | None]:
        return Counter(record.value for record in self.records(topic))

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap_servers)


@pytest.fixture
def sink(broker: BrokerProcess, topic: str) -> Sink:
    """A stream to `topic`, which has three partitions."""
    broker.create_topic(topic, 3)
    return Sink(broker, topic, topic)


def rows(*values: str | None, **columns: Any) -> Any:
    return pyarrow.RecordBatch.from_pydict({"value": pyarrow.array(values, "string"), **columns})


def test_first_note_has_the_ends_of_the_topic(
    broker: BrokerProcess, sink: Sink, topic: str
) -> None:
    sink.write(rows("a", "b"))
    other = Sink(broker, f"{topic}.other", topic)
    first = other.last()
    assert first.note.batch is None
    assert sum(first.note.ends[topic].values()) == 2
    assert other.last() == first
    with sink.admin() as admin:
        [described] = admin.describe_topics([NOTES_TOPIC]).raise_first().values()
    assert len(described.partitions) == 1


def test_missing_topic_has_no_ends(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    sink = Sink(broker, topic, topic)
    assert sink.last().note == CommitNote(ends={topic: {}})


@pytest.mark.parametrize("is_same_run", [True, False])
def test_interrupted_attempt_is_completed(sink: Sink, topic: str, is_same_run: bool) -> None:
    plan = sink.plan()
    sink.interrupt(rows("a", "b", "a", None), after=4, topic=topic, plan=plan)
    plan = plan if is_same_run else sink.plan()
    outcome = sink.write(rows("c", "a", None), rows(None, "a", "b", "a"), plan=plan)
    assert outcome.rows == 7
    assert len(outcome.left) == 6 * 16
    sink.commit(outcome)
    assert sink.values(topic) == {b"a": 3, b"b": 1, b"c": 1, None: 2}


def test_any_number_of_attempts_is_completed(sink: Sink, topic: str) -> None:
    for count in range(4):
        batches = [rows(f"{n}", "x") for n in range(count)]
        # The driver adds the equal rows, of which an attempt writes only the first.
        sink.interrupt(*batches, after=count + bool(count), topic=topic)
    sink.commit(sink.write(*[rows(f"{n}", "x") for n in range(5)]))
    assert sink.values(topic) == {b"x": 5, **{b"%d" % n: 1 for n in range(5)}}


def test_rows_may_move_to_other_tasks(sink: Sink, topic: str) -> None:
    plan = sink.plan()
    sink.write(rows("a", "x", "b"), task=0, plan=plan)
    sink.write(rows("x"), task=1, plan=plan)
    plan = sink.plan()
    parts = (rows("c", "x"), rows("b"), rows("x", "a", "x"))
    sink.commit(*(sink.write(one, task=n, plan=plan) for n, one in enumerate(parts)))
    assert sink.values(topic) == {b"a": 1, b"b": 1, b"c": 1, b"x": 3}


def test_keys_headers_and_chosen_partitions_are_kept(sink: Sink, topic: str) -> None:
    headers = pyarrow.list_(
        pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    )
    every = rows(
        "a",
        "a",
        "a",
        "a",
        key=pyarrow.array([None, b"", b"k", b"k"], "binary"),
        headers=pyarrow.array([None, [], [{"key": "é", "value": None}], None], headers),
        partition=pyarrow.array([None, None, 2, 1], "int32"),
    )
    sink.interrupt(every.slice(0, 3), after=3, topic=topic)
    sink.commit(sink.write(every))
    found = sink.records(topic)
    assert sorted((one.key or b"?", tuple(one.headers[:-1])) for one in found) == [
        (b"?", ()),
        (b"?", ()),
        (b"k", ()),
        (b"k", (("é", None),)),
    ]
    assert {one.partition for one in found if one.key == b"k"} == {1, 2}


def test_records_in_new_partitions_are_found(sink: Sink, topic: str) -> None:
    sink.last()
    with sink.admin() as admin:
        admin.create_partitions({topic: 5}).raise_first()
    partition = pyarrow.array([4, 0], "int32")
    sink.interrupt(rows("a", "b", partition=partition), after=2, topic=topic)
    sink.commit(sink.write(rows("a", "b", partition=partition)))
    assert sink.values(topic) == {b"a": 1, b"b": 1}


def test_topic_of_a_later_batch_is_noted_by_the_task(
    broker: BrokerProcess, sink: Sink, topic: str, new_topic: Callable[[], str]
) -> None:
    old, missing = new_topic(), new_topic()
    broker.create_topic(old, 1)
    sink.write(rows("before"), batch=BatchId("another", 0))
    every = Sink(broker, f"{topic}.all", None)
    for _ in range(2):
        for values, target, count in ((["a"], topic, 2), (["b", "b"], old, 2), (["c"], missing, 1)):
            batch = rows(*values, topic=pyarrow.array([target] * len(values)))
            every.interrupt(batch, after=count, topic=target)
    outcome = every.write(rows("a", "b", "b", "c", "c", topic=[topic, old, old, missing, missing]))
    assert outcome.topics == {topic, old, missing}
    every.commit(outcome)
    assert every.values(topic) == {b"a": 1, b"before": 1}
    assert every.values(old) == {b"b": 2}
    assert every.values(missing) == {b"c": 2}


def test_committed_batch_is_not_written_again(sink: Sink, topic: str) -> None:
    first, plan = sink.last(), sink.plan()
    sink.commit(*(sink.write(rows(f"{task}", "x"), task=task, plan=plan) for task in range(2)))
    plan = sink.plan()
    noted = plan.notes.last
    assert noted.offset > first.offset
    assert (noted.note.batch, noted.note.rows) == (BATCH, 4)
    assert sum(noted.note.ends[topic].values()) == 4
    taken = iter([rows("0"), rows("x")])
    outcome = write_task(sink.options, sink.name, BATCH, 0, plan, taken)
    assert list(taken) == []
    sink.commit(outcome, sink.write(rows("1", "x"), task=1, plan=plan))
    assert sink.last() == noted
    assert len(sink.records(topic)) == 4


def test_next_batch_may_have_the_same_rows(sink: Sink, topic: str) -> None:
    for number in range(3):
        batch = BATCH._replace(batch=number)
        sink.interrupt(rows("a", "b"), after=2 + 3 * number, topic=topic, batch=batch)
        sink.commit(sink.write(rows("b", "c", "a"), batch=batch))
    assert sink.values(topic) == {b"a": 3, b"b": 3, b"c": 3}


def test_query_without_its_checkpoint_writes_again(sink: Sink, topic: str) -> None:
    sink.commit(sink.write(rows("a")))
    sink.commit(sink.write(rows("a"), batch=BatchId("query-2", 0)))
    assert sink.values(topic) == {b"a": 2}


def test_checkpoint_that_is_older_than_the_output_is_refused(sink: Sink) -> None:
    sink.commit(sink.write(rows("a"), batch=BATCH._replace(batch=7)))
    with pytest.raises(DeduplicationError, match="older than the output"):
        sink.write(rows("a"), batch=BATCH._replace(batch=6))


def test_two_queries_with_one_name_are_noticed(sink: Sink) -> None:
    one = sink.write(rows("a"))
    sink.commit(sink.write(rows("b"), batch=BatchId("query-2", 0)))
    with pytest.raises(DeduplicationError, match="query query-2 has written"):
        sink.commit(one)


def test_rows_of_a_recreated_topic_are_found(broker: BrokerProcess, sink: Sink, topic: str) -> None:
    sink.commit(sink.write(rows(*"abcdef")))
    # The worker of another task knows nothing of the old topic. The producer of this one could ask
    # for it after its deletion, and so create it with one partition.
    for producer in worker_producers._kept.values():
        producer.close()
    worker_producers._kept.clear()
    with sink.admin() as admin:
        admin.delete_topics([topic]).raise_first()
    broker.create_topic(topic, 3)
    batch = BATCH._replace(batch=1)
    sink.interrupt(rows("a"), after=1, topic=topic, batch=batch)
    sink.commit(sink.write(rows("a", "b"), batch=batch))
    assert sink.values(topic) == {b"a": 1, b"b": 1}


def test_deleted_records_are_skipped(sink: Sink, topic: str) -> None:
    partition = pyarrow.array([0, 0], "int32")
    sink.interrupt(rows("a", "b", partition=partition), after=2, topic=topic)
    with sink.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 1}).raise_first()
    sink.commit(sink.write(rows("b", "c", partition=partition)))
    assert sink.values(topic) == {b"b": 1, b"c": 1}


def test_settings_of_a_producer_alone_are_not_used_for_reading() -> None:
    both = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": "ca.pem",
        "client_id": "c",
    }
    settings = {**both, "linger.ms": "5", "compression.type": "lz4", "acks": "all"}
    assert reading_settings(settings) == both
