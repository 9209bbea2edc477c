"""The table of our own tools, so that ``plog --help`` imports none of them.

Scanning every installed distribution for entry points costs more than all the rest of the command
(docs/decisions/0012); so the table names what setup.cfg declares under ``plog.commands``, and
tests/unit/cli/test_commands.py holds the two equal, and each summary to the tool's docstring.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import argparse

GROUP: Final = "plog.commands"

Configure: TypeAlias = "Callable[[argparse.ArgumentParser], None]"


class Command(NamedTuple):
    """One tool: its name, the function that configures its parser, and what it does."""

    name: str
    target: str
    """``module:function``, as in an entry point."""
    summary: str
    short_names: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether its package is there: a client's installation may lack the broker's."""
        return importlib.util.find_spec(self.target.partition(".")[0]) is not None

    def load(self) -> Configure:
        """Import the tool."""
        module, _, function = self.target.partition(":")
        configure: Configure = getattr(importlib.import_module(module), function)
        return configure


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "broker-api-versions",
        "plog.cli.broker_api_versions:configure",
        "Tell which versions of which requests brokers serve.",
    ),
    Command(
        "cluster",
        "plog.cli.cluster:configure",
        "Tell the id of a cluster, and where its brokers are; let it forget one.",
    ),
    Command(
        "completion",
        "plog.cli.completion:configure",
        "Print what makes a shell complete plog's commands and options.",
    ),
    Command(
        "configs",
        "plog.cli.configs.command:configure",
        "Tell and change settings of topics, brokers and groups, quotas, and users' passwords.",
    ),
    Command(
        "console-consumer",
        "plog.cli.console.console_consumer:configure",
        "Print the records of topics, and go on as more come.",
        ("consume", "tail"),
    ),
    Command(
        "console-producer",
        "plog.cli.console.console_producer:configure",
        "Send lines of standard input, or of a file, as records to a topic.",
        ("produce",),
    ),
    Command(
        "consumer-groups",
        "plog.cli.consumer_groups.command:configure",
        "List, describe and delete consumer groups, and move their offsets.",
    ),
    Command(
        "consumer-perf-test",
        "plog.cli.perf.consumer_perf_test:configure",
        "Read many records, and print the throughput.",
    ),
    Command(
        "delete-records",
        "plog.cli.delete_records:configure",
        "Delete the records of partitions below an offset.",
    ),
    Command(
        "dump-log",
        "plogd.tools.dump.command:configure",
        "Print what is in the files of a log: records, indexes, producer snapshots.",
    ),
    Command(
        "e2e-latency",
        "plog.cli.perf.e2e_latency:configure",
        "Measure how long a record takes from a producer to a consumer.",
    ),
    Command(
        "features",
        "plog.cli.features:configure",
        "Tell the features a cluster runs, and change their levels.",
    ),
    Command(
        "get-offsets",
        "plog.cli.get_offsets:configure",
        "Tell offsets of partitions: the latest, the earliest, or those of a time.",
    ),
    Command(
        "log-dirs",
        "plog.cli.log_dirs:configure",
        "Tell what lies in the log directories of brokers.",
    ),
    Command(
        "metadata-shell",
        "plogd.tools.metadata.shell:configure",
        "Walk through a cluster's metadata as if it were a file system, offline.",
        ("metadata",),
    ),
    Command(
        "producer-perf-test",
        "plog.cli.perf.producer_perf_test:configure",
        "Send many records, and print throughput and latencies.",
    ),
    Command(
        "replay",
        "plog.cli.replay.command:configure",
        "Copy a range of a topic into another one, at a chosen speed.",
    ),
    Command(
        "storage",
        "plogd.tools.storage.command:configure",
        "Look after data directories, offline.",
    ),
    Command(
        "topics",
        "plog.cli.topics.command:configure",
        "Create, change, delete, list and describe topics.",
    ),
    Command(
        "verifiable-consumer",
        "plog.cli.verifiable.verifiable_consumer:configure",
        "Read in a group, and print an event of JSON for each step.",
    ),
    Command(
        "verifiable-producer",
        "plog.cli.verifiable.verifiable_producer:configure",
        "Send growing numbers, and print an event of JSON for each.",
    ),
    Command(
        "zookeeper-shell",
        "plog.cli.zookeeper.shell:configure",
        "Look at ZooKeeper's znodes, and change them.",
    ),
)


def find_command(name: str, commands: tuple[Command, ...] = COMMANDS) -> Command | None:
    """The row with this name or short name."""
    return next((row for row in commands if name == row.name or name in row.short_names), None)
