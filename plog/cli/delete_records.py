"""``plog delete-records``: delete records by raising the start offset of partitions.

Source: Kafka 4.3 DeleteRecordsCommand.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from plog.cli.admin_client import run_admin
from plog.cli.options import UsageError, add_admin_options
from plog.cli.output import Table, show
from plog.cli.parser import add_examples
from plog.client.admin.records import RecordAdmin
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
    with open(arguments.offset_json_file, encoding="utf-8") as file:
        offsets = parse_offsets(file.read())
    return run_admin(arguments, lambda cluster: delete_records(cluster, offsets, arguments))


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the start offsets in `text`, the contents of the file. Raises UsageError.

    >>> parse_offsets(_EXAMPLE)
    {TopicPartition(topic='orders', partition=0): 100}
    """
    try:
        document: Any = json.loads(text)
        if not isinstance(document, dict):
            raise TypeError("not a JSON object")
        # Kafka's tool also accepts files without a version.
        version = document.get("version", 1)
        rows = [
            (TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"]))
            for row in document["partitions"]
        ]
    # Invalid JSON is a ValueError; an entry that is not an object raises TypeError.
    except (ValueError, KeyError, TypeError) as error:
        # The text of a KeyError is only the key.
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UsageError(
            f"cannot read --offset-json-file: {reason}; it must look like {_EXAMPLE}"
        ) from None
    if version != 1:
        raise UsageError(
            f"cannot read --offset-json-file: version {version} is not supported; use version 1"
        )
    offsets = dict(rows)
    # As in Kafka's tool, duplicate partitions are an error.
    if len(offsets) < len(rows):
        seen = [partition for partition, _ in rows]
        duplicates = sorted({str(each) for each in seen if seen.count(each) > 1})
        raise UsageError(
            f"cannot read --offset-json-file: duplicate partitions: {', '.join(duplicates)}"
        )
    return offsets


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
