"""``plog spark recommend``: find the items that users see together."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import positive
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import JobCommand, source_of, trigger_of, values_of
from plog.cli.spark.jobs.window_parser import (
    add_event_options,
    add_text_options,
    add_topic_options,
)
from plog.cli.time_range import add_time_range_options
from plog.spark.jobs.job_source import TimeRange
from plog.spark.jobs.local_folder import local_folder
from plog.spark.jobs.recommend.job import run_recommend
from plog.spark.jobs.recommend.recommend_options import (
    OUTPUT_FORMATS,
    SCORES,
    RecommendOptions,
    SimilarityOptions,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Find the items that users see together, and publish the most similar ones of each item."""
    # A batch reads and writes all counts, so there should be few large batches.
    add_event_options(parser, interval_s=600, needs_checkpoint=False)
    add_time_range_options(
        parser,
        "start of the range",
        "end of the range",
        ("the first record", "the last record"),
    )
    parser.add_argument(
        "--item",
        required=True,
        metavar="NAME",
        help="field, or column of the records, that identifies an item, such as a page",
    )
    add_text_options(
        parser,
        ("--by", "key", "NAME", "field, or column of the records, that identifies the user"),
        ("--time", "timestamp", "NAME", "field, or column of the records, with the time"),
        ("--window", "1 hour", "DURATION", "time in which a user sees items together"),
        ("--watermark", "10 minutes", "DURATION", "how late a record may be to be counted"),
    )
    _add_result_options(parser)
    add_topic_options(parser)
    add_examples(
        parser,
        (
            "update the similar pages with what has arrived since the last run",
            "plog spark recommend --bootstrap-server localhost:9092 --topic clicks --format json"
            " --schema 'user string, page string' --by user --item page --output similar-pages"
            " --checkpoint checkpoints/recommend --available-now",
        ),
        (
            "use the clicks of one month",
            "plog spark recommend --bootstrap-server localhost:9092 --topic clicks --format json"
            " --schema 'user string, page string' --by user --item page --output january"
            " --from 2026-01-01 --to 2026-02-01",
        ),
    )


def _add_result_options(parser: argparse.ArgumentParser) -> None:
    similarity, shown = SimilarityOptions(), " (default: %(default)s)"
    for name, default, text in (
        ("--max-items", 100, "maximum number of items of a user in a window; more are sampled"),
        ("--min-count", similarity.min_count, "minimum number of times that items are together"),
        ("--top", similarity.top, "number of similar items of an item"),
    ):
        parser.add_argument(
            name, type=positive, default=default, metavar="N", help=f"{text}{shown}"
        )
    parser.add_argument(
        "--score",
        choices=tuple(SCORES),
        default=similarity.score,
        help=f"how similarity is computed{shown}",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for the result, on a disk that the driver and all executors share",
    )
    parser.add_argument(
        "--output-format",
        choices=OUTPUT_FORMATS,
        default=OUTPUT_FORMATS[0],
        help=f"format of the files{shown}",
    )


def options_of(arguments: argparse.Namespace) -> RecommendOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return RecommendOptions(
        source=source_of(arguments),
        # Results are replaced by renaming files, which only local file systems do atomically.
        output=local_folder(arguments.output, "--output"),
        item=arguments.item,
        # Without a checkpoint, the job reads a range once, so there is no position to store.
        checkpoint=arguments.checkpoint,
        times=TimeRange(from_ms=arguments.from_ms, to_ms=arguments.to_ms),
        values=values_of(arguments),
        by=arguments.by,
        time=arguments.time,
        window=arguments.window,
        watermark=arguments.watermark,
        max_items=arguments.max_items,
        similarity=SimilarityOptions(
            score=arguments.score, min_count=arguments.min_count, top=arguments.top
        ),
        output_format=arguments.output_format,
        output_topic=arguments.output_topic,
        dead_letter_topic=arguments.dead_letter_topic,
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="recommend", configure=configure, options=options_of, run=run_recommend
)
