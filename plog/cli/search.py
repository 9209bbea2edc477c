"""``plog search``: find records by their words in an index of ``plog spark search-index``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from plog.cli.options import add_json_option, positive
from plog.cli.output import Table, one_line, show
from plog.cli.parser import add_examples

if TYPE_CHECKING:
    from plog.search.index_search import Match

_LIMIT = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Find records by their words in an index that plog spark search-index has written."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the index")
    parser.add_argument(
        "query",
        metavar="QUERY",
        help='words that a record must contain; also "a phrase", OR, NOT, prefix*, column:word',
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=_LIMIT,
        metavar="N",
        help="maximum number of records (default: %(default)s)",
    )
    add_json_option(parser)
    add_examples(
        parser,
        ("find records with both words", "plog search /data/index 'disk full'"),
        ("find a phrase", "plog search /data/index '\"disk is full\"' --limit 3"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Search, and print what matches. Raises SearchError."""
    # Imported here because parsing and help do not need sqlite3.
    from plog.search.index_search import search_index

    found = search_index(arguments.folder, arguments.query, limit=arguments.limit)
    show(
        lambda: ("\t".join(map(str, row)) for row in _rows(found)),
        lambda: [Table(("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "TEXT"), _rows(found))],
        lambda: [
            {
                "topic": match.topic,
                "partition": match.partition,
                "offset": match.offset,
                "timestamp": match.timestamp_ms,
                # FTS5's scores are negative, and the lowest is the best. Programs expect the
                # opposite.
                "score": -match.score,
                "snippet": match.snippet,
            }
            for match in found
        ],
        as_json=arguments.json,
    )
    return 0


def _rows(found: Sequence[Match]) -> list[tuple[object, ...]]:
    return [
        (
            match.topic,
            match.partition,
            match.offset,
            time_text(match.timestamp_ms),
            one_line(match.snippet),
        )
        for match in found
    ]


def time_text(timestamp_ms: int | None) -> str:
    """Return a time in UTC, or a hyphen for a record without a timestamp.

    >>> time_text(1_767_268_800_007), time_text(None)
    ('2026-01-01T12:00:00.007Z', '-')
    """
    if timestamp_ms is None:
        return "-"
    try:
        # The format of datetime has microseconds, but no milliseconds.
        seconds, ms = divmod(timestamp_ms, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"
    # Records can have timestamps after the year 9999.
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
