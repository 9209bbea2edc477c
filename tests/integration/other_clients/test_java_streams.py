"""A Kafka Streams word count: its result, internal topics, and a restart without local state."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.eventually import eventually
from tests.helpers.programs.confluent import create_topic, produce, read
from tests.helpers.programs.kafka_tools import KafkaTools, table

PARTITIONS = 3
WORDS = ("boats", "against", "the", "current", "borne", "back", "ceaselessly", "into", "past")


@pytest.fixture
def lines() -> list[str]:
    """Lines of words, some of which are more frequent."""
    chance = random.Random(1925)
    return [" ".join(chance.choices(WORDS, range(1, len(WORDS) + 1), k=12)) for _ in range(400)]


def send(broker: BrokerProcess, topic: str, lines: list[str]) -> None:
    messages = [{"value": line.encode(), "key": b"%d" % i} for i, line in enumerate(lines)]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}


def counts(broker: BrokerProcess, topic: str) -> dict[str, int]:
    """Return the latest count of each word."""
    messages = read(broker.bootstrap_servers, topic, PARTITIONS)
    return {m.key().decode(): int.from_bytes(m.value(), "big") for m in messages}


def test_words_are_counted_and_a_restart_restores_the_changelog(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str, tmp_path: Path, lines: list[str]
) -> None:
    result = f"{topic}-counts"
    for name in (topic, result):
        create_topic(broker.bootstrap_servers, name, PARTITIONS)
    state = tmp_path / "state"
    words: Counter[str] = Counter()
    for some_lines in (lines[:300], lines[300:]):
        # The counts now exist only in the changelog.
        shutil.rmtree(state, ignore_errors=True)
        send(broker, topic, some_lines)
        words.update(word for line in some_lines for word in line.split())
        with kafka_tools.start(
            "programs.WordCount", broker.bootstrap_servers, topic, topic, result, state
        ) as program:
            eventually(lambda: counts(broker, result) == words, "correct counts")
            program.end()
            assert "state ERROR" not in program.lines
    _assert_internal_topics(kafka_tools, broker, topic)


def _assert_internal_topics(tools: KafkaTools, broker: BrokerProcess, topic: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)

    def first_line(name: str) -> str:
        return tools.run("TopicCommand", *server, "--describe", "--topic", name).splitlines()[0]

    changelog = first_line(f"{topic}-counts-changelog")
    assert "cleanup.policy=compact" in changelog
    assert f"PartitionCount: {PARTITIONS}" in changelog
    repartition = first_line(f"{topic}-words-repartition")
    assert "cleanup.policy=delete" in repartition
    assert "retention.ms=-1" in repartition
    # Streams deletes the records that it has read (DeleteRecords).
    starts = tools.run(
        "GetOffsetShell", *server, "--topic", f"{topic}-words-repartition", "--time", "earliest"
    )
    assert any(int(line.rpartition(":")[2]) > 0 for line in starts.split())

    rows = table(tools.run("ConsumerGroupCommand", *server, "--describe", "--group", topic))
    assert len(rows) == 2 * PARTITIONS
    assert {row["LAG"] for row in rows} == {"0"}
