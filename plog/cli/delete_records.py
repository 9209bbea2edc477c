"""``plog delete-records``: delete records by raising the start offset of partitions.

Source: Kafka 4.3 DeleteRecordsCommand.
"""

from __future__ import annotations

import argparse

from plog.cli.admin_client import run_admin
from plog.cli.json_file import duplicates, read_json_file
from plog.cli.options import add_admin_options
from plog.cli.output import Table, show
from plog.cli.parser import add_examples
from plog.client.admin.records import HIGH_WATERMARK, RecordAdmin
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError
from plog.types import TopicPartition

_EXAMPLE = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 100}], "version": 1}'


def configure(parser: argparse.ArgumentParser) -> None:
    """Delete the records before a given offset in each partition."""
    add_admin_options(parser)
    parser.add_argument(
        "--offset-json-file",
        required=True,
        metavar="FILE",
        help="JSON file with each partition's new start offset (-1 for the partition's end):"
        f" {_EXAMPLE}",
    )
    add_examples(
        parser,
        (
            "delete the records before the offsets in the file",
            "plog delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json",
        ),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Delete the records below the offsets in the file; return 1 if a partition failed."""
    # The file is read first, so that its errors are reported even if no broker is available.
    offsets = read_offsets(arguments.offset_json_file)
    return run_admin(arguments, lambda cluster: delete_records(cluster, offsets, arguments))


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Return the start offsets in a file. Raises OSError and UsageError."""
    rows = read_json_file(path, _EXAMPLE).field("partitions")
    offsets = [
        (row.topic_partition(), row.field("offset").number(at_least=HIGH_WATERMARK))
        for row in rows.elements()
    ]
    # As in Kafka's tool, duplicate partitions are an error.
    repeated = duplicates(partition for partition, _ in offsets)
    if repeated:
        raise rows.error(f"lists partitions twice: {', '.join(map(str, repeated))}")
    return dict(offsets)


async def delete_records(
    cluster: Cluster, offsets: dict[TopicPartition, int], arguments: argparse.Namespace
) -> int:
    """Delete records and print the new start offset of each partition."""
    # With --json, standard output contains only the document.
    plain = not arguments.json
    if plain:
        # Kafka's tool prints this and the line after the request, too.
        print("Executing records delete operation")
    done = await RecordAdmin(cluster).delete_records(offsets)
    if plain:
        print("Records delete operation completed:")
    show(
        lambda: (_line(partition, outcome) for partition, outcome in done.items()),
        lambda: [
            Table(
                ("TOPIC", "PARTITION", "START OFFSET", "ERROR"),
                [_row(partition, outcome) for partition, outcome in done.items()],
            )
        ],
        lambda: [
            dict(zip(("topic", "partition", "low_watermark", "error"), _row(*each), strict=True))
            for each in done.items()
        ],
        as_json=arguments.json,
    )
    return 1 if done.errors else 0


def _line(partition: TopicPartition, outcome: int | KafkaError) -> str:
    if isinstance(outcome, KafkaError):
        return f"partition: {partition}\terror: {outcome.message}"
    return f"partition: {partition}\tlow_watermark: {outcome}"


def _row(
    partition: TopicPartition, outcome: int | KafkaError
) -> tuple[str, int, int | None, str | None]:
    if isinstance(outcome, KafkaError):
        return (*partition, None, outcome.message)
    return (*partition, outcome, None)
