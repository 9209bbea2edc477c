"""``plog console-producer`` and ``console-consumer``, compared with Kafka's on the same topics."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.plog_command import Plog
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool

ALL_PARTS = [
    option
    for part in ("timestamp", "partition", "offset", "headers", "key", "value")
    for option in ("--formatter-property", f"print.{part}=true")
]
HEADERS_AND_KEY = [
    "--property", "parse.headers=true", "--property", "parse.key=true",
    "--property", "null.marker=NULL",
]  # fmt: skip


@pytest.fixture
def plog(broker: BrokerProcess) -> Plog:
    """Runs `plog` against the shared broker."""
    return Plog(broker.bootstrap_servers)


TIMEOUT_MS = "60000"
"""Longer than any of these commands takes on a busy machine; none waits for it."""


def _all(plog: Plog, topic: str, *options: str) -> list[str]:
    """Return options that read all records of a topic and then end, however slow the machine is."""
    if "--max-messages" not in options:
        options = ("--max-messages", str(plog.record_count(topic)), *options)
    return ["--topic", topic, "--from-beginning", "--timeout-ms", TIMEOUT_MS, *options]


def _values(plog: Plog, topic: str, *options: str) -> list[bytes]:
    return plog.run("consume", *_all(plog, topic, *options)).splitlines()


LINES = b"h1:v1,h2:NULL\talice\t/index.html\n\t\t\nh:\tNULL\tNULL\nNULL\tb\xc3\xa4\tt\twice\r\n"


@pytest.mark.parametrize(
    "options",
    [
        HEADERS_AND_KEY,
        pytest.param([], marks=pytest.mark.long),
        pytest.param(["--property", "ignore.error=true"], marks=pytest.mark.long),
    ],
)
def test_producer_sends_the_same_records_as_kafkas(
    plog: Plog, run: RunTool, new_topic: Callable[[], str], options: list[str]
) -> None:
    lines = LINES if options != HEADERS_AND_KEY else LINES.replace(b"\t\t\n", b"a:\t\t\n")
    ours, theirs = new_topic(), new_topic()
    plog.run("produce", "--topic", ours, *options, stdin=lines)
    assert run("ConsoleProducer", "--topic", theirs, *options, stdin=lines.decode()).code == 0
    shown = [
        _without_times(plog.run("consume", *_all(plog, topic, *ALL_PARTS)).decode())
        for topic in (ours, theirs)
    ]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 4


@pytest.mark.parametrize(
    "options",
    [
        [],
        ALL_PARTS,
        [
            *ALL_PARTS,
            "--formatter-property",
            "key.separator=|",
            "--formatter-property",
            "null.literal=-",
        ],
        [*ALL_PARTS, "--formatter-property", "headers.separator=;"],
        [*ALL_PARTS, "--formatter-property", "line.separator=!\n"],
        ["--formatter-property", "print.key=true", "--formatter-property", "print.value=false"],
        ["--formatter-property", "print.delivery=true"],
        ["--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"],
        ["--key-deserializer", "org.apache.kafka.common.serialization.StringDeserializer"],
    ],
)
def test_consumer_prints_the_same_as_kafkas(
    plog: Plog, run: RunTool, topic: str, options: list[str]
) -> None:
    lines = LINES.replace(b"\t\t\n", b"a:\t\t\n")
    plog.run("produce", "--topic", topic, *HEADERS_AND_KEY, stdin=lines)
    theirs = run("ConsoleConsumer", *_all(plog, topic, "--max-messages", "4", *options))
    ours = plog.attempt("console-consumer", *_all(plog, topic, "--max-messages", "4", *options))
    assert theirs.code == ours.returncode == 0
    assert ours.stdout.decode() == theirs.stdout
    assert ours.stderr.decode() == "Processed a total of 4 messages\n"
    assert "Processed a total of 4 messages" in theirs.stderr


def test_long_deserializer_prints_the_same_as_kafkas(plog: Plog, run: RunTool, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"\0\0\0\0\0\0\1\2")
    as_long = "org.apache.kafka.common.serialization.LongDeserializer"
    options = _all(plog, topic, "--value-deserializer", as_long, "--max-messages", "1")
    assert plog.run("consume", *options).decode() == run("ConsoleConsumer", *options).stdout
    refusal = plog.refusal(
        "consume", *_all(plog, topic, "--value-deserializer", as_long.replace("Long", "Integer"))
    )
    assert "IntegerDeserializer cannot deserialize 8 bytes" in refusal
    assert "Processed a total of 1 messages" in refusal


@pytest.mark.parametrize("kind", ["Offsets", pytest.param("GroupMetadata", marks=pytest.mark.long)])
def test_coordinator_records_are_printed_the_same_as_by_kafkas(
    plog: Plog, run: RunTool, topic: str, kind: str
) -> None:
    plog.run("produce", "--topic", topic, stdin=b"a\nb\n")
    group = f"of-{topic}"
    plog.run("consume", *_all(plog, topic, "--group", group, "--max-messages", "2"))
    name = f"org.apache.kafka.tools.consumer.{kind}MessageFormatter"
    options = _all(plog, "__consumer_offsets", "--formatter", name)
    ours, theirs = (
        [line for line in text.replace('}{"key"', '}\n{"key"').splitlines() if group in line]
        for text in (
            plog.run("consume", *options).decode(),
            run("ConsoleConsumer", *options).stdout,
        )
    )
    assert list(map(json.loads, ours)) == list(map(json.loads, theirs))
    assert ours == theirs
    assert ours


def test_binary_values_are_copied_unchanged(plog: Plog, topic: str, tmp_path: Path) -> None:
    value = bytes(set(range(256)) - {10}) + b"\xff"
    path = tmp_path / "lines"
    path.write_bytes(value + b"\n" + value)
    plog.run("produce", "--topic", topic, "--from-file", path)
    assert plog.run("consume", *_all(plog, topic)) == (value + b"\n") * 2
    [first, _] = map(json.loads, _values(plog, topic, "--json"))
    assert set(first["value"]) == {"base64"}


def test_file_is_sent_in_order(plog: Plog, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(20_000)))
    plog.run(
        "console-producer", "--topic", topic, "--from-file", path, "--compression-codec", "zstd",
        "--batch-size", "50000", "--command-property", "linger.ms=20",
    )  # fmt: skip
    assert plog.run("consume", *_all(plog, topic)) == path.read_bytes()


def test_empty_input_sends_no_records(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic)
    plog.run("produce", "--topic", topic, stdin=b"only\n")
    assert _values(plog, topic) == [b"only"]


def test_invalid_line_ends_the_tool_after_earlier_lines_are_sent(plog: Plog, topic: str) -> None:
    error = plog.refusal(
        "produce", "--topic", topic, "--property", "parse.key=true", stdin=b"k\tv\nno tab\nk\tw\n"
    )
    assert error == (
        "plog: line 2 does not contain the key separator '\\t': 'no tab';"
        " 1 record was sent before it\n"
    )
    assert _values(plog, topic) == [b"v"]


@pytest.mark.parametrize("options", [[], ["--sync"]])
def test_too_large_record_is_reported_with_its_line_and_others_are_sent(
    plog: Plog, topic: str, options: list[str]
) -> None:
    large = b"x" * 2_000_000
    error = plog.refusal(
        "produce", "--topic", topic, *options, stdin=b"a\n" + large + b"\nb\n"
    )  # fmt: skip
    assert error.startswith("plog: line 2 was not delivered: cannot send a record of about 20000")
    assert len(error.splitlines()) == 1
    assert _values(plog, topic) == [b"a", b"b"]


def test_record_rejected_by_the_broker_is_reported_with_its_line(
    plog: Plog, run: RunTool, topic: str
) -> None:
    run("TopicCommand", "--create", "--topic", topic, "--config", "max.message.bytes=1000")
    error = plog.refusal("produce", "--topic", topic, stdin=b"a\n" + b"x" * 5000 + b"\nb\n")
    assert "plog: line 2 was not delivered: " in error
    assert len(error.splitlines()) == 1
    assert _values(plog, topic) == [b"a", b"b"]


def test_records_not_written_to_a_closed_pipe_are_not_committed(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"".join(b"%0900d\n" % i for i in range(3000)))
    consume = plog.command("consume", "--topic", topic, "--from-beginning", "--group", topic)
    with subprocess.Popen(consume, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert int(process.stdout.readline()) == 0
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait() == 0
    assert "unable to write to standard output" in errors
    assert "Traceback" not in errors
    # The number of records that are left is unknown, so only silence ends this command.
    out = plog.run("consume", "--topic", topic, "--group", topic, "--timeout-ms", "8000")
    rest = [int(x) for x in out.splitlines()]
    assert rest == list(range(rest[0], 3000))
    assert rest[0] < 3000


def test_group_continues_at_its_committed_offset(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"".join(b"%d\n" % i for i in range(700)))
    group = ("--group", topic)
    assert _values(plog, topic, *group, "--max-messages", "3") == [b"0", b"1", b"2"]
    rest = _values(plog, topic, *group, "--max-messages", "697")
    assert (rest[0], rest[-1], len(rest)) == (b"3", b"699", 697)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_signal_commits_and_prints_the_total(
    plog: Plog, topic: str, number: signal.Signals, code: int
) -> None:
    plog.run("produce", "--topic", topic, stdin=b"a\nb\n")
    options = ("--topic", topic, "--from-beginning", "--group", topic)
    with plog.start("consume", *options, "--enable-systest-events") as consumer:
        assert consumer.wait_for_lines(2) == ["a", "b"]
        assert consumer.stop(number) == code
    assert consumer.errors == ["Processed a total of 2 messages"]
    assert consumer.lines == ["a", "b", "shutdown_complete"]
    rest = plog.run("consume", "--topic", topic, "--group", topic, "--timeout-ms", "1500")
    assert rest == b""


def test_interrupted_producer_prints_one_line(plog: Plog, topic: str) -> None:
    plog.run("topics", "--create", "--topic", topic)
    with (
        plog.start("tail", "--topic", topic, "--from-beginning") as consumer,
        plog.start("produce", "--topic", topic) as producer,
    ):
        producer.type("one\ntwo\n")
        assert consumer.wait_for_lines(2) == ["one", "two"]
        assert producer.stop() == 130
        assert producer.errors == ["plog: stopped"]
        assert consumer.stop() == 130


def test_producer_and_consumer_continue_after_a_broker_restart(own_broker: BrokerProcess) -> None:
    plog = Plog(own_broker.bootstrap_servers)
    plog.run("topics", "--create", "--topic", "t")
    with (
        plog.start("tail", "--topic", "t", "--from-beginning") as consumer,
        plog.start("produce", "--topic", "t") as producer,
    ):
        producer.type("one\n")
        assert consumer.wait_for_lines(1) == ["one"]
        own_broker.kill()
        producer.type("two\n")
        own_broker.restart()
        producer.type("three\n")
        assert consumer.wait_for_lines(3) == ["one", "two", "three"]
        assert producer.wait() == 0
        assert consumer.stop() == 130
    assert consumer.errors[-1] == "Processed a total of 3 messages"


def test_partition_is_read_from_the_given_offset(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"0\n1\n2\n")
    partition = ("--topic", topic, "--partition", "0", "--timeout-ms")
    two, three = (("--max-messages", number) for number in "23")
    wait = (*partition, TIMEOUT_MS)
    assert plog.run("consume", *wait, *two, "--offset", "1") == b"1\n2\n"
    assert plog.run("consume", *wait, *three, "--offset", "earliest") == b"0\n1\n2\n"
    assert plog.run("consume", *wait, *three, "--from-beginning") == b"0\n1\n2\n"
    assert plog.run("consume", *partition, "1000") == b""
    assert plog.run("consume", *wait, "--offset", "1", "--max-messages", "0") == b""


def test_include_option_selects_topics_by_pattern(plog: Plog, topic: str) -> None:
    for end in ("-a", "-b"):
        plog.run("produce", "--topic", topic + end, stdin=b"%b\n" % end.encode())
    out = plog.run(
        "consume", "--include", f"{topic}-.", "--from-beginning", "--max-messages", "2",
        "--timeout-ms", TIMEOUT_MS,
    )  # fmt: skip
    assert sorted(out.split()) == [b"-a", b"-b"]


def test_unreachable_broker_is_reported(topic: str) -> None:
    unreachable = Plog("127.0.0.1:1")
    error = unreachable.refusal("produce", "--topic", topic, "--max-block-ms", "500", stdin=b"a\n")
    assert error.splitlines()[-1].startswith("plog: line 1 and all later lines were not sent: ")


@pytest.mark.parametrize("tool", ["consume", "tail"])
def test_reading_a_missing_topic_is_an_error_and_does_not_create_it(plog: Plog, tool: str) -> None:
    name = f"missing-{tool}"
    assert f"cannot read topic {name}: it does not exist" in plog.refusal(tool, "--topic", name)
    assert name.encode() not in plog.run("topics", "--list")


def test_reading_a_missing_partition_is_an_error(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"a\n")
    error = plog.refusal("consume", "--topic", topic, "--partition", "9")
    assert f"cannot read partition 9 of topic {topic}: it has partitions 0 to " in error


def test_invalid_topic_name_is_reported(plog: Plog) -> None:
    assert "bad topic" in plog.refusal("produce", "--topic", "bad topic", stdin=b"a\n")


def test_topic_that_is_not_created_is_reported(start_broker: Callable[..., BrokerProcess]) -> None:
    plog = Plog(start_broker({"auto.create.topics.enable": "false"}).bootstrap_servers)
    error = plog.refusal("produce", "--topic", "none", "--max-block-ms", "500", stdin=b"a\n")
    assert "none" in error


@pytest.mark.parametrize(
    ("tool", "options", "error"),
    [
        ("produce", ["--topic", "t", "--batch-size", "0"], "0 is less than 1"),
        ("produce", ["--topic", "t", "--compression-codec", "rar"], "rar"),
        ("produce", ["--topic", "t", "--command-property", "linger=5"], "linger.ms"),
        ("produce", ["--topic", "t", "--property", "key.divider=:"], "key.divider"),
        ("produce", ["--topic", "t", "--from-file", "/nowhere/x"], "/nowhere/x"),
        ("produce", ["--topic", "t", "--request-required-acks", "7"], "acks"),
        ("produce", ["--topic", "t", "--line-reader", "mine.Reader"], "mine.Reader"),
        ("consume", [], "--topic and --include"),
        ("consume", ["--include", "["], "'[' is not a regular expression"),
        ("consume", ["--topic", "t", "--offset", "1"], "--partition"),
        (
            "consume",
            ["--topic", "t", "--partition", "0", "--group", "g"],
            "--group and --partition",
        ),
        ("consume", ["--topic", "t", "--formatter", "Mine"], "DefaultMessageFormatter"),
        ("consume", ["--topic", "t", "--property", "print.all=true"], "print.all"),
        ("consume", ["--topic", "t", "--command-config", "/nowhere/x"], "/nowhere/x"),
    ],
)
def test_usage_error_is_one_line(plog: Plog, tool: str, options: list[str], error: str) -> None:
    refusal = plog.refusal(tool, *options, stdin=b"a\n")
    assert error in refusal
    assert len(refusal.splitlines()) == 1


def test_records_of_kafkas_producer_are_read(
    kafka_tools: KafkaTools, plog: Plog, topic: str
) -> None:
    kafka_tools.run(
        "ProducerPerformance", "--bootstrap-server", plog.bootstrap_servers, "--topic", topic,
        "--num-records", "1000", "--throughput", "-1", "--payload-monotonic",
        "--command-property", "compression.type=lz4",
    )  # fmt: skip
    assert _values(plog, topic) == [b"%d" % i for i in range(1000)]


def _without_times(text: str) -> list[str]:
    return [line.partition("\t")[2] for line in text.splitlines()]
