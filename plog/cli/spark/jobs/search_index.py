"""``plog spark search-index``: add the texts of topics to an index for ``plog search``."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import comma_list, positive
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import (
    JobCommand,
    add_source_options,
    add_start_option,
    add_trigger_options,
    add_value_options,
    source_of,
    trigger_of,
    values_of,
)
from plog.search.index_folder import DEFAULT_SHARDS, TOKENIZERS
from plog.spark.jobs.local_folder import local_folder
from plog.spark.jobs.search_index.job import run_search_index
from plog.spark.jobs.search_index.search_index_options import SearchIndexOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the texts of topics to an index, in which plog search finds records."""
    add_source_options(parser)
    add_start_option(parser)
    add_trigger_options(parser, interval_s=60)
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder of the index, on a disk that the driver and all executors share",
    )
    # The default of other jobs, raw, has no text that could be indexed.
    add_value_options(parser, infers=False, default="text")
    parser.add_argument(
        "--text",
        type=comma_list,
        default=[],
        metavar="FIELD[,FIELD]",
        help="fields that are indexed (default: all fields that are strings)",
    )
    parser.add_argument(
        # No default, because an existing index keeps its number of shards.
        "--shards",
        type=positive,
        metavar="N",
        help="number of files of a new index, which are written concurrently (default:"
        f" {DEFAULT_SHARDS})",
    )
    parser.add_argument(
        "--tokenizer",
        choices=tuple(TOKENIZERS),
        help="what queries can find in a new index: whole words, English words in all forms, or"
        " parts of words (default: words)",
    )
    parser.add_argument(
        "--dead-letter-topic", metavar="TOPIC", help="topic for values that cannot be decoded"
    )
    add_examples(
        parser,
        (
            "index the messages of a topic that have arrived since the last run",
            "plog spark search-index --bootstrap-server localhost:9092 --topic logs --format json"
            " --schema 'host string, message string' --text message --output index"
            " --checkpoint checkpoints/index --available-now",
        ),
    )


def options_of(arguments: argparse.Namespace) -> SearchIndexOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return SearchIndexOptions(
        source=source_of(arguments),
        # SQLite needs a file system with locks.
        index=local_folder(arguments.output, "--output"),
        checkpoint=arguments.checkpoint,
        values=values_of(arguments),
        texts=tuple(arguments.text),
        shards=arguments.shards,
        tokenizer=arguments.tokenizer,
        dead_letter_topic=arguments.dead_letter_topic,
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="search-index", configure=configure, options=options_of, run=run_search_index
)
