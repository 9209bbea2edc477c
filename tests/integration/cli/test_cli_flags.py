"""plog's tools accept every flag in the help of Kafka's tools."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from plog.cli.main import load_tool
from plog.cli.parser import tool_parser
from tests.helpers.programs.kafka_tools import KafkaTools

TOOLS = {
    "broker-api-versions": "BrokerApiVersionsCommand",
    "cluster": "ClusterTool",
    "configs": "ConfigCommand",
    "console-consumer": "ConsoleConsumer",
    "console-producer": "ConsoleProducer",
    "consumer-groups": "ConsumerGroupCommand",
    "consumer-perf-test": "ConsumerPerformance",
    "delete-records": "DeleteRecordsCommand",
    "dump-log": "DumpLogSegments",
    "features": "FeatureCommand",
    "get-offsets": "GetOffsetShell",
    "leader-election": "LeaderElectionCommand",
    "log-dirs": "LogDirsCommand",
    "metadata-shell": "MetadataShell",
    "producer-perf-test": "ProducerPerformance",
    "reassign-partitions": "ReassignPartitionsCommand",
    "storage": "StorageTool",
    "topics": "TopicCommand",
    "verifiable-consumer": "VerifiableConsumer",
    "verifiable-producer": "VerifiableProducer",
}
SUBCOMMANDS = {
    "cluster": ("cluster-id", "unregister", "list-endpoints"),
    "features": (
        "describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies",
    ),
    "storage": ("info", "format", "version-mapping", "feature-dependencies", "random-uuid"),
}  # fmt: skip
_ENDS_THE_JVM = ("cluster", "metadata-shell", "verifiable-consumer", "verifiable-producer")
_FLAG = re.compile(r"(?<![\w.-])--?[A-Za-z][\w.-]*")
_FLAGS_END = re.compile(r"\s{2,}|$")


@pytest.mark.long
@pytest.mark.parametrize("tool", TOOLS)
def test_tool_accepts_every_flag_of_kafkas_help(kafka_tools: KafkaTools, tool: str) -> None:
    parser = tool_parser(tool, load_tool(tool))
    for subcommand in SUBCOMMANDS.get(tool, ("",)):
        words = [subcommand] if subcommand else []
        theirs = _flags_of_help(_help(kafka_tools, tool, *words))
        assert theirs, "no flags found in the help of Kafka's tool"
        ours = set(_flags(_subparser(parser, subcommand) if subcommand else parser)) | {"--version"}
        assert theirs <= ours, f"plog {tool} {subcommand} lacks {sorted(theirs - ours)}"


def _help(tools: KafkaTools, tool: str, *words: str) -> str:
    if tool not in _ENDS_THE_JVM:
        return tools.attempt(TOOLS[tool], *words, "--help").text
    with tools.start(TOOLS[tool], *words, "--help") as process:
        process.wait()
        return process.output()


def _flags_of_help(text: str) -> set[str]:
    """Return the flags at the start of lines, without their values and descriptions."""
    found = set()
    for line in text.splitlines():
        if line.lstrip().startswith("-") and len(line) - len(line.lstrip()) <= 2:
            stripped = line.lstrip()
            end = _FLAGS_END.search(stripped)
            assert end is not None
            found |= set(_FLAG.findall(re.sub(r"<.*?(>|$)", "", stripped[: end.start()])))
    return found


def _subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    [action] = [x for x in parser._actions if isinstance(x, argparse._SubParsersAction)]
    found: argparse.ArgumentParser = action.choices[name]
    return found


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
