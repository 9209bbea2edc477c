"""``plog metadata-shell``: a cluster's metadata, walked through as if it were a file system.

Reads plog's embedded metadata log, and the log and snapshots of Kafka's controllers, changes
nothing, and needs no broker. metadata_tree.py makes the tree, shell_commands.py has the
commands.
Source: Kafka 4.3 MetadataShell.
"""

from __future__ import annotations

import argparse
import posixpath
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from plog.cli.output import terminal_width
from plog.cli.parser import add_examples
from plog.errors import PlogError
from plog.records.batch import iter_batches
from plog.version import VERSION
from plog.wire.internal.kraft_records import KNOWN_RECORDS
from plog.wire.internal.metadata_records import decode_known_record
from plogd.log import file_names
from plogd.os_files import OsFiles
from plogd.ports import Files
from plogd.tools.metadata import kraft_log_reader
from plogd.tools.metadata.metadata_tree import MetadataTree
from plogd.tools.metadata.shell_commands import COMMANDS, Shell
from plogd.tools.storage.import_source import METADATA_DIR

_RAFT_STATE_FILE = "quorum-state"
_PROMPT = ">> "


def configure(parser: argparse.ArgumentParser) -> None:
    """Browse a cluster's metadata as a file system, offline."""
    parser.add_argument(
        "--snapshot",
        "-s",
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="a snapshot or segment of the metadata log, its directory, or a log directory "
        "that holds it",
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help=f"run one command and end: {', '.join(COMMANDS)}; without one a shell begins",
    )
    add_examples(
        parser,
        ("the topics there are", "plog metadata --snapshot plog-data ls /image/topics/byName"),
        ("all that is set", "plog metadata --snapshot plog-data tree /image/configs"),
        ("a shell", "plog metadata --snapshot plog-data"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the one command, or a shell."""
    shell = Shell(read_tree(OsFiles(), arguments.snapshot))
    if arguments.command:
        for line in shell.run(arguments.command):
            print(line)
        return 0
    if sys.stdin.isatty():
        _use_readline(shell)
    return interact(shell)


def interact(shell: Shell) -> int:
    """Read commands until there are no more."""
    shell.width = terminal_width() if sys.stdout.isatty() else None
    prompt = _PROMPT if sys.stdin.isatty() else ""
    while not shell.is_over:
        try:
            line = input(prompt)
        except EOFError:
            break
        try:
            words = shlex.split(line)
        except ValueError as error:
            print(f"{error}: close the quote")
            continue
        for each in shell.run(words, line) if words else ():
            print(each)
    return 0


def _use_readline(shell: Shell) -> None:
    """Let the terminal's line have a history and complete paths."""
    try:
        import readline
    except ImportError:  # A Python built without it.
        return

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_begidx()]
        found = list(shell.completions(text, is_command=not line.strip()))
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")


# -- reading -----------------------------------------------------------------------------------


class Source(NamedTuple):
    """What was read: encoded records with their offsets, and where the last one came from."""

    values: list[tuple[int, bytes]]
    provenance: str
    ours: bool


def read_tree(files: Files, path: str) -> dict[str, object]:
    """The tree of what `path` holds. Raises PlogError, OSError."""
    source = read_source(files, path)
    tree = MetadataTree(ours=source.ours)
    for offset, value in source.values:
        try:
            tree.replay(decode_known_record(value, KNOWN_RECORDS)[0])
        except (PlogError, KeyError) as error:
            raise PlogError(
                f"{path}: the metadata record at offset {offset} cannot be understood: {error}"
            ) from error
    return tree.root(source.provenance, VERSION)


def read_source(files: Files, path: str) -> Source:
    """The records a path stands for: newest snapshot and what follows it, or one file alone."""
    if files.is_dir(path):
        inner = posixpath.join(path, METADATA_DIR)
        return _read_directory(files, inner if files.is_dir(inner) else path)
    data = files.read_file(path)
    ours = not files.exists(posixpath.join(posixpath.dirname(path), _RAFT_STATE_FILE))
    if path.endswith(".checkpoint"):
        parsed = kraft_log_reader.parse_snapshot_name(posixpath.basename(path))
        end_offset = parsed.end_offset if parsed else 1
        values = [(end_offset - 1, value) for value in kraft_log_reader.snapshot_values(data)]
        return Source(values, _provenance([data], end_offset - 1), ours)
    values = list(kraft_log_reader.log_values([data], 0 if _begins_at_zero(path) else _start(data)))
    return Source(values, _provenance([data]), ours)


def _read_directory(files: Files, directory: str) -> Source:
    listed = files.listdir(directory)
    snapshots = sorted(
        (parsed, name)
        for parsed, name in ((kraft_log_reader.parse_snapshot_name(x), x) for x in listed)
        if parsed is not None
    )
    values: list[tuple[int, bytes]] = []
    start, parts = 0, []
    if snapshots:
        newest, name = snapshots[-1]
        start = newest.end_offset
        parts = [files.read_file(posixpath.join(directory, name))]
        values += [(start - 1, value) for value in kraft_log_reader.snapshot_values(parts[0])]
    segments = [files.read_file(path) for path in _segments(listed, directory, start)]
    if not segments and not parts:
        raise PlogError(
            f"{directory} holds no metadata: name a log directory with {METADATA_DIR} in it, "
            "or a .checkpoint file"
        )
    values += kraft_log_reader.log_values(segments, start)
    behind = any(segments)
    provenance = _provenance(segments) if behind else _provenance(parts, start - 1)
    ours = not files.exists(posixpath.join(directory, _RAFT_STATE_FILE))
    return Source(values, provenance, ours)


def _segments(listed: list[str], directory: str, start: int) -> Iterator[str]:
    """Paths of the segments that hold anything from `start` on."""
    parsed = [file_names.parse_segment_file_name(name) for name in listed]
    bases = sorted(
        x.base_offset for x in parsed if x and not x.state and x.suffix == file_names.LOG_SUFFIX
    )
    for number, base in enumerate(bases):
        following = bases[number + 1 : number + 2]
        if not following or following[0] > start:
            yield file_names.segment_path(directory, base, file_names.LOG_SUFFIX)


def _begins_at_zero(path: str) -> bool:
    return posixpath.basename(path).startswith("0" * 20)


def _start(data: bytes) -> int:
    return next((header.base_offset for _, header in iter_batches(data)), 0)


def _provenance(parts: list[bytes], offset: int | None = None) -> str:
    """Offset, epoch and time of the last batch; `offset` where a snapshot's name tells it."""
    last = None
    for data in parts:
        for _, header in iter_batches(data):
            last = header
    if last is None:
        return "offset -1, epoch -1, time never"
    time = datetime.fromtimestamp(max(last.max_timestamp, 0) / 1000, UTC)
    shown = last.last_offset if offset is None else offset
    return (
        f"offset {shown}, epoch {last.partition_leader_epoch},"
        f" time {time.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}[UTC]"
    )
