"""The perf tools of `plog` print the columns and units of Kafka's."""

from __future__ import annotations

import re

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.plog_command import Plog
from tests.helpers.programs.kafka_tools import RunTool


@pytest.fixture
def plog(broker: BrokerProcess) -> Plog:
    """Runs `plog` against the shared broker."""
    return Plog(broker.bootstrap_servers)


def _shape(text: str) -> list[str]:
    """Return the lines with each number replaced by its number of decimal places."""

    def decimals(match: re.Match[str]) -> str:
        return f"<{len(match[1] or '.') - 1}>"

    return [re.sub(r"\d+(\.\d+)?", decimals, line) for line in text.splitlines()]


def test_producer_lines_have_kafkas_format(plog: Plog, run: RunTool, topic: str) -> None:
    options = [
        "--topic", topic, "--num-records", "300", "--record-size", "100", "--throughput", "1000",
        "--warmup-records", "100", "--command-property", "linger.ms=0", "acks=all",
    ]  # fmt: skip
    ours = plog.run("producer-perf-test", *options).decode()
    theirs = run("ProducerPerformance", *options).stdout
    assert _shape(ours) == _shape(theirs)
    assert ours.splitlines()[-2].startswith("300 records sent, ")
    assert ours.splitlines()[-1].startswith("200 steady state records sent, ")


def test_producer_keeps_the_requested_rate(plog: Plog, topic: str) -> None:
    out = plog.run(
        "producer-perf-test", "--topic", topic, "--num-records", "400", "--payload-monotonic",
        "--throughput", "400", "--reporting-interval", "300",
    ).decode()  # fmt: skip
    *windows, total = out.splitlines()
    rate = float(total.split(", ")[1].split()[0])
    assert 200 < rate < 450
    assert windows
    values = plog.run("consume", "--topic", topic, "--from-beginning", "--max-messages", "400")
    assert values.split() == [b"%d" % i for i in range(400)]


def test_consumer_columns_have_kafkas_format(plog: Plog, run: RunTool, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"".join(b"%d\n" % i for i in range(2000)))
    options = ["--topic", topic, "--timeout", "10000", "--num-records", "2000"]
    ours = plog.run("consumer-perf-test", *options).decode().splitlines()
    theirs = run("ConsumerPerformance", *options).stdout.splitlines()
    assert ours[0] == theirs[0]
    assert _shape(ours[1]) == _shape(theirs[1])
    assert ours[1].split(", ")[4] == theirs[1].split(", ")[4] == "2000"
    assert ours[1].split(", ")[2] == theirs[1].split(", ")[2]

    detailed = [*options, "--show-detailed-stats", "--reporting-interval", "1", "--hide-header"]
    line = plog.run("consumer-perf-test", *detailed).decode().splitlines()[-1]
    assert re.fullmatch(
        r"[\d-]+ [\d:]+, 0, \d\.\d{4}, \d+\.\d{4}, \d+, \d+\.\d{4},"
        r" \d+, -?\d+, \d+\.\d{4}, \d+\.\d{4}",
        line,
    )


def test_consumer_fails_when_records_do_not_arrive(plog: Plog, topic: str) -> None:
    plog.run("produce", "--topic", topic, stdin=b"a\n")
    done = plog.attempt(
        "consumer-perf-test", "--topic", topic, "--num-records", "2", "--timeout", "500"
    )
    assert done.returncode == 1
    assert "read only 1 records" in done.stderr.decode()


@pytest.mark.parametrize("positional", [False, True])
def test_latency_lines_have_kafkas_format(
    plog: Plog, run: RunTool, topic: str, positional: bool
) -> None:
    named = [
        "--topic", topic, "--num-records", "20", "--producer-acks", "all", "--record-size", "50",
        "--record-key-size", "5", "--num-headers", "2", "--record-header-key-size", "3",
        "--record-header-size", "-1",
    ]  # fmt: skip
    theirs = run("EndToEndLatency", *named).stdout.splitlines()
    if positional:
        import subprocess

        command = [*plog.command("e2e-latency")[:-2], plog.bootstrap_servers, topic, "20", "1", "9"]
        out = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    else:
        out = plog.run("e2e-latency", *named).decode()
    *_, first, mean, shares = out.splitlines()
    assert re.fullmatch(r"0\t\d+(\.\d+)?", first)
    assert _shape(mean) == _shape(theirs[-2])
    assert _shape(shares) == _shape(theirs[-1])


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        ("producer-perf-test", ["--throughput", "-1"], "--record-size"),
        (
            "producer-perf-test",
            ["--throughput", "-1", "--record-size", "1", "--transactional-id", "x"],
            "does not measure transactions",
        ),
        ("consumer-perf-test", ["--date-format", "Q"], "'Q'"),
        ("e2e-latency", ["--producer-acks", "0", "--record-size", "1"], "0"),
    ],
)
def test_usage_error_is_one_line(plog: Plog, tool: str, options: list[str], message: str) -> None:
    refusal = plog.refusal(tool, "--topic", "t", "--num-records", "10", *options)
    assert message in refusal
    assert len(refusal.splitlines()) == 1
