"""Table of plog's own tools, from which ``plog --help`` lists the tools without importing them.

The table repeats the entry points that setup.cfg declares under ``plog.commands``, because scanning
all installed distributions for entry points takes longer than the rest of the command
(docs/decisions/0012). tests/unit/cli/test_commands.py checks that table and entry points are equal,
and that each summary is the first line of the tool's docstring.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import argparse

GROUP: Final = "plog.commands"

# A string, because argparse is imported only for type checkers here.
Configure: TypeAlias = "Callable[[argparse.ArgumentParser], None]"


# Not a dataclass: the import of dataclasses, which imports inspect, would delay the list of
# commands by several milliseconds.
class Command(NamedTuple):
    """A tool: its name, the function that configures its parser, and its summary."""

    name: str
    target: str
    """``module:function``, as in an entry point."""
    summary: str
    short_names: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Return whether the tool's package is installed; `plogd` can be missing."""
        # Only for the top-level package does find_spec() not import anything: for a submodule, it
        # imports the packages above it.
        return importlib.util.find_spec(self.target.partition(".")[0]) is not None

    def load(self) -> Configure:
        """Import the tool and return its configure function."""
        module, _, function = self.target.partition(":")
        # Only this tool is imported, because the imports of all tools would delay each command.
        configure: Configure = getattr(importlib.import_module(module), function)
        return configure


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "audit",
        "plog.cli.audit:configure",
        "Find records that were lost or repeated, with the counts that producers have reported.",
    ),
    Command(
        "broker",
        "plog.cli.broker.command:configure",
        "Move replicas or leaders away from a broker, return its leaders, or check if it may stop.",
    ),
    Command(
        "broker-api-versions",
        "plog.cli.broker_api_versions:configure",
        "Print the request versions that each broker supports.",
    ),
    Command(
        "cluster",
        "plog.cli.cluster:configure",
        "Print the cluster id, list the endpoints of a cluster, or unregister a broker.",
    ),
    Command(
        "completion",
        "plog.cli.completion:configure",
        "Print shell code for completing plog's commands and options.",
    ),
    Command(
        "configs",
        "plog.cli.configs.command:configure",
        "Describe and change topic, broker and group settings, quotas, and SCRAM users.",
    ),
    Command(
        "console-consumer",
        "plog.cli.console.console_consumer:configure",
        "Print records from topics as they arrive.",
        # Short names of plog, for commands that are typed often. setup.cfg declares them, too.
        ("consume", "tail"),
    ),
    Command(
        "console-producer",
        "plog.cli.console.console_producer:configure",
        "Send each line from standard input or a file to a topic as a record.",
        ("produce",),
    ),
    Command(
        "consumer-groups",
        "plog.cli.consumer_groups.command:configure",
        "List, describe and delete consumer groups, and reset their offsets.",
    ),
    Command(
        "consumer-perf-test",
        "plog.cli.perf.consumer_perf_test:configure",
        "Consume many records and print the throughput.",
    ),
    Command(
        "delete-records",
        "plog.cli.delete_records:configure",
        "Delete the records before a given offset in each partition.",
    ),
    Command(
        "dump-log",
        # This and other tools for files of the broker are in its package, which may be missing.
        "plogd.tools.dump.command:configure",
        "Print the contents of log files: records, indexes, producer snapshots.",
    ),
    Command(
        "e2e-latency",
        "plog.cli.perf.e2e_latency:configure",
        "Measure record latency from a producer to a consumer.",
    ),
    Command(
        "features",
        "plog.cli.features:configure",
        "Describe a cluster's features and change their levels.",
    ),
    Command(
        "get-offsets",
        "plog.cli.get_offsets:configure",
        "Print partition offsets: the latest, the earliest, or those for a timestamp.",
    ),
    Command(
        "leader-election",
        "plog.cli.leader_election:configure",
        "Elect preferred leaders, or elect leaders that are not in sync.",
    ),
    Command(
        "log-dirs",
        "plog.cli.log_dirs:configure",
        "Describe brokers' log directories.",
    ),
    Command(
        "metadata-shell",
        "plogd.tools.metadata.shell:configure",
        "Browse a cluster's metadata as a file system, offline.",
        ("metadata",),
    ),
    Command(
        "producer-perf-test",
        "plog.cli.perf.producer_perf_test:configure",
        "Send many records and print the throughput and latencies.",
    ),
    Command(
        "reassign-partitions",
        "plog.cli.reassign_partitions.command:configure",
        "Move the replicas of partitions to other brokers, and limit and observe the moves.",
    ),
    Command(
        "rebalance",
        "plog.cli.rebalance.command:configure",
        "Distribute replicas and leaders evenly over brokers, with the least data to copy.",
    ),
    Command(
        "replay",
        "plog.cli.replay.command:configure",
        "Copy a range of records from one topic to another, at a chosen speed.",
    ),
    Command(
        "search",
        "plog.cli.search:configure",
        "Find records by their words in an index that plog spark search-index has written.",
    ),
    Command(
        "spark",
        "plog.cli.spark.command:configure",
        "Run a Spark job that reads or writes topics, or pack what its executors need.",
    ),
    Command(
        "sql",
        "plog.cli.sql:configure",
        "Run a SQL query whose tables are topics, with Spark, and print the result.",
    ),
    Command(
        "storage",
        "plogd.tools.storage.command:configure",
        "Format, inspect and import data directories, offline.",
    ),
    Command(
        "topics",
        "plog.cli.topics.command:configure",
        "Create, change, delete, list and describe topics.",
    ),
    Command(
        "verifiable-consumer",
        "plog.cli.verifiable.verifiable_consumer:configure",
        "Consume as a group member and print each step as a JSON event.",
    ),
    Command(
        "verifiable-producer",
        "plog.cli.verifiable.verifiable_producer:configure",
        "Send increasing numbers and print each step as a JSON event.",
    ),
    Command(
        "zookeeper-shell",
        "plog.cli.zookeeper.shell:configure",
        "Read and change znodes in ZooKeeper.",
    ),
)


def find_command(name: str, commands: tuple[Command, ...] = COMMANDS) -> Command | None:
    """Return the row with this name or short name."""
    # A dictionary would not be faster: it would be built for a single search.
    return next((row for row in commands if name == row.name or name in row.short_names), None)
