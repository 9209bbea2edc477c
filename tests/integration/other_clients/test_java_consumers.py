"""Java consumers written as users write them; their sources are in tests/integration/java.

ManualCommit: members that commit manually and use the cooperative assignor. CommitModes: automatic,
synchronous and asynchronous commits.
"""

from __future__ import annotations

from collections.abc import Sequence

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools, table

PARTITIONS = 4


def fill(broker: BrokerProcess, topic: str, values: Sequence[int]) -> None:
    """Produce each value v to partition v modulo PARTITIONS."""
    messages = [{"value": b"%d" % v, "partition": v % PARTITIONS} for v in values]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}


def values_read(program: JavaProcess, *names: str, start: int = 0) -> list[int]:
    words = [line.split() for line in program.lines[start:]]
    return [int(word[4]) for word in words if word[0] in names and word[1] == "read"]


def wait_until_read(program: JavaProcess, names: tuple[str, ...], count: int) -> list[int]:
    """Wait until the members have read and committed `count` values; return them sorted."""

    def done(lines: Sequence[str]) -> bool:
        words = [line.split() for line in lines]
        mine = [word for word in words if word[0] in names]
        ends = {word[2]: int(word[3]) + 1 for word in mine if word[1] == "read"}
        committed = {word[2]: int(word[3]) for word in mine if word[1] == "committed"}
        return sum(word[1] == "read" for word in mine) >= count and committed == ends

    program.wait_until(done, f"{count} committed records of {names}")
    return sorted(values_read(program, *names))


def numbers(text: str) -> set[int]:
    return {int(word) for word in text.strip("[]").split(",") if word}


def test_members_with_manual_commits_rebalance_resume_and_seek(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    fill(broker, topic, range(100))
    arguments = (broker.bootstrap_servers, topic, topic)
    with kafka_tools.start("programs.ManualCommit", *arguments) as program:
        program.tell("join ann")
        assert wait_until_read(program, ("ann",), 100) == list(range(100))

        program.tell("join bob")
        bobs = numbers(program.wait_for(r"^bob assigned (\[.+\]) owns \1$")[1])
        assert len(bobs) == 2
        # Cooperative: only the partitions that bob got were revoked from ann.
        revoked = program.wait_for(r"^ann revoked (\S+)$")
        assert numbers(revoked[1]) == bobs
        fill(broker, topic, range(100, 200))
        assert wait_until_read(program, ("ann", "bob"), 200) == list(range(200))
        assert {value % PARTITIONS for value in values_read(program, "bob")} == bobs

        [state] = table(
            kafka_tools.run(
                "ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap_servers,
                "--describe", "--state", "--group", topic,
            )
        )  # fmt: skip
        assert state["ASSIGNMENT-STRATEGY"] == "cooperative-sticky"
        events = len(program.lines)
        program.tell("leave bob")
        program.wait_for(r"^ann assigned \S+ owns \[0,1,2,3\]$", start=events)
        program.end()

    fill(broker, topic, range(200, 240))
    with kafka_tools.start("programs.ManualCommit", *arguments) as program:
        program.tell("join eve")
        for partition in range(PARTITIONS):
            program.wait_for(f"^eve resumes {partition} 50 by (ann|bob)$")
        assert wait_until_read(program, ("eve",), 40) == list(range(200, 240))
        start = len(program.lines)
        program.tell("seek eve 2 30")
        expected = list(range(2 + 30 * PARTITIONS, 240, PARTITIONS))
        program.wait_until(
            lambda _: values_read(program, "eve", start=start) == expected, "second reading"
        )
        program.end()


def test_automatic_synchronous_and_asynchronous_commits_succeed(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    fill(broker, topic, range(200))
    with kafka_tools.start("programs.CommitModes", broker.bootstrap_servers, topic, "200") as done:
        assert done.wait() == 0, done.output()
    assert done.lines == [
        "auto committed 200",
        "auto next begins 200",
        "sync committed 200",
        "sync next begins 200",
        "async committed 200 answered true failed []",
        "async next begins 200",
    ]
