"""The options of ``plog dump-log``, and the choice of the printer for each file.

log_file.py prints the records of a segment or of a metadata snapshot, indexes.py prints the other
files, and decoders.py decodes the records of internal topics.

The output matches that of Kafka's DumpLogSegments byte for byte, so that scripts written for
Kafka's tool also work with plog's; the integration tests compare the two. If a file is damaged,
Kafka's tool ends with a stack trace. This tool prints one line with the file, the position and the
problem, continues if it can, and exits with code 1. Unlike Kafka's tool, it never creates a missing
index. Source: Kafka 4.3 DumpLogSegments.
"""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections.abc import Callable, Iterator

from plog.cli.options import positive
from plog.cli.parser import add_examples, fail
from plogd.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from plogd.tools.dump.decoders import STRING_DECODER, choose_decoder
from plogd.tools.dump.indexes import dump_index, dump_snapshot, dump_time_index, dump_txn_index
from plogd.tools.dump.log_file import CHECKPOINT_SUFFIX, NO_LIMIT, RecordOptions, dump_log
from plogd.tools.dump.problem_report import ProblemReport

_DECODERS = {
    "--offsets-decoder": "decode records of __consumer_offsets",
    "--transaction-log-decoder": "decode records of __transaction_state",
    "--cluster-metadata-decoder": "decode records of __cluster_metadata and its snapshots",
    "--remote-log-metadata-decoder": "decode records of __remote_log_metadata",
    "--share-group-state-decoder": "decode records of __share_group_state",
}
"""Help text by flag. If several flags are given, the first in this order is used."""
_DEFAULT_MAX_MESSAGE_BYTES = 5 << 20
"""The default of Kafka's tool."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Print the contents of log files: records, indexes, producer snapshots."""
    parser.add_argument(
        "--files",
        required=True,
        metavar="FILE[,FILE]",
        help="the .log, .index, .timeindex, .txnindex, .snapshot and .checkpoint files to print",
    )
    _add_record_options(parser)
    _add_index_options(parser)
    add_examples(
        parser,
        (
            "print the batches of a segment and their records",
            "plog dump-log --files orders-0/00000000000000000000.log --print-data-log",
        ),
        (
            "check an index of the segment",
            "plog dump-log --files orders-0/00000000000000000000.index --index-sanity-check",
        ),
        (
            "print the offsets that consumer groups have committed",
            "plog dump-log --files __consumer_offsets-0/00000000000000000000.log --offsets-decoder",
        ),
    )
    parser.set_defaults(run=run)


def _add_record_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    group.add_argument(
        "--print-data-log",
        action="store_true",
        help="also print keys and values; implied by every option that selects a decoder",
    )
    group.add_argument(
        "--deep-iteration", action="store_true", help="print each record as well as the batches"
    )
    group.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="print only the contents of records, and omit control records",
    )
    group.add_argument(
        "--max-bytes",
        type=positive,
        default=NO_LIMIT,
        metavar="SIZE",
        help="maximum number of bytes to read from each .log file (default: unlimited)",
    )
    for flag, what in _DECODERS.items():
        group.add_argument(flag, action="store_true", help=what)
    for what in ("key", "value"):
        group.add_argument(
            f"--{what}-decoder-class",
            nargs="?",
            const=STRING_DECODER,  # Kafka's option also works without a class.
            metavar="CLASS",
            help=f"class that decodes the {what}: Kafka's String, Integer, Long or DefaultDecoder",
        )


def _add_index_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("indexes")
    group.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="only run the checks that a broker runs at startup, without printing entries",
    )
    group.add_argument(
        "--verify-index-only",
        action="store_true",
        help="check the entries against the .log file without printing them",
    )
    group.add_argument(
        "--max-message-size",
        type=positive,
        default=_DEFAULT_MAX_MESSAGE_BYTES,
        metavar="SIZE",
        help="maximum size, in bytes, of a batch that an entry points to (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print every file, and return the exit code: 1 if a file is damaged."""
    findings = ProblemReport(on_damage=fail)
    for path in arguments.files.split(","):
        for line in dump_file(posixpath.normpath(path), arguments, findings):
            sys.stdout.write(line + "\n")
    # Otherwise, the problems could appear before the lines to which they refer.
    sys.stdout.flush()
    for line in findings.lines():
        print(line, file=sys.stderr)
    return 1 if findings.is_damaged else 0


def dump_file(path: str, arguments: argparse.Namespace, findings: ProblemReport) -> Iterator[str]:
    """Yield the lines to print for one file. Raises OSError if it cannot be read."""
    yield f"Dumping {path}"
    suffix = posixpath.splitext(path)[1]
    if suffix in (LOG_SUFFIX, CHECKPOINT_SUFFIX):
        yield from dump_log(path, record_options(arguments), findings)
        return
    sanity_only, verify_only = arguments.index_sanity_check, arguments.verify_index_only
    dumps: dict[str, Callable[[], Iterator[str]]] = {
        INDEX_SUFFIX: lambda: dump_index(
            path, findings, sanity_only, verify_only, arguments.max_message_size
        ),
        TIME_INDEX_SUFFIX: lambda: dump_time_index(path, findings, sanity_only, verify_only),
        SNAPSHOT_SUFFIX: lambda: dump_snapshot(path, findings),
        TXN_INDEX_SUFFIX: lambda: dump_txn_index(path, findings),
    }
    dump = dumps.get(suffix)
    if dump is None:
        # Kafka's tool also only warns, so that a pattern such as 0000* can be passed.
        print(f"Ignoring unknown file {path}", file=sys.stderr)
        return
    yield from dump()


def record_options(arguments: argparse.Namespace) -> RecordOptions:
    """Return the command-line options that control how records are printed."""
    names = (flag.lstrip("-").replace("-", "_") for flag in _DECODERS)
    decoder = next((name for name in names if getattr(arguments, name)), "")
    classes = (arguments.key_decoder_class, arguments.value_decoder_class)
    # As in Kafka's tool, a decoder implies --print-data-log, which implies --deep-iteration.
    print_contents = arguments.print_data_log or bool(decoder) or any(classes)
    return RecordOptions(
        print_contents=print_contents,
        deep=arguments.deep_iteration or print_contents,
        skip_metadata=arguments.skip_record_metadata,
        max_bytes=arguments.max_bytes,
        decode=choose_decoder(decoder, *(name or STRING_DECODER for name in classes)),
    )
