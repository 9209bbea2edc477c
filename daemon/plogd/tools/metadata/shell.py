"""``plog metadata-shell``: browse a cluster's metadata as a file system.

The shell reads plog's embedded metadata log, or the log and snapshots of Kafka's controllers. It
does not change any data, and does not need a broker. metadata_tree.py builds the tree;
shell_commands.py contains the commands. Source: Kafka 4.3 MetadataShell.
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
from plogd.metadata.snapshot_name import SnapshotName, parse_snapshot_name
from plogd.os_files import OsFiles
from plogd.ports import Files
from plogd.tools.metadata import kraft_log_reader
from plogd.tools.metadata.kraft_log_reader import UnreadableMetadata
from plogd.tools.metadata.metadata_tree import MetadataTree
from plogd.tools.metadata.shell_commands import COMMANDS, Shell
from plogd.tools.storage.import_source import METADATA_DIR

_RAFT_STATE_FILE = "quorum-state"
"""Kafka's controllers write this file, but plog does not."""
_PROMPT = ">> "


def configure(parser: argparse.ArgumentParser) -> None:
    """Browse a cluster's metadata as a file system, offline."""
    parser.add_argument(
        "--snapshot",
        "-s",
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="snapshot or segment of the metadata log, its directory, or the log directory "
        "that contains it",
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help=f"command to run: {', '.join(COMMANDS)} (default: start an interactive shell)",
    )
    add_examples(
        parser,
        ("list the topics", "plog metadata --snapshot plog-data ls /image/topics/byName"),
        ("show all dynamic settings", "plog metadata --snapshot plog-data tree /image/configs"),
        ("start a shell", "plog metadata --snapshot plog-data"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments contain, or an interactive shell."""
    shell = Shell(read_tree(OsFiles(), arguments.snapshot))
    if arguments.command:
        for line in shell.run(arguments.command):
            print(line)
        return 0
    if sys.stdin.isatty():
        _use_readline(shell)
    return interact(shell)


def interact(shell: Shell) -> int:
    """Read and run commands until ``exit`` or the end of the input."""
    # A script that reads the output expects one name per line, as from ls(1).
    shell.width = terminal_width() if sys.stdout.isatty() else None
    # Commands from a pipe must not leave prompts in the output.
    prompt = _PROMPT if sys.stdin.isatty() else ""
    while not shell.exited:
        try:
            line = input(prompt)
        except EOFError:
            break
        try:
            words = shlex.split(line)
        except ValueError as error:
            print(f"cannot parse the line: {error}; close the quote")
            continue
        for each in shell.run(words, line) if words else ():
            print(each)
    return 0


def _use_readline(shell: Shell) -> None:
    """Enable line history and the completion of commands and paths."""
    try:
        import readline
    except ImportError:  # Some Python builds lack readline.
        return

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_begidx()]
        found = list(shell.completions(text, is_command=not line.strip()))
        # readline calls the function with 0, 1, 2 and so on, until it returns None.
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    # By default, a slash ends a word, so that only the last name would be passed.
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")


# -- reading -----------------------------------------------------------------------------------


class Source(NamedTuple):
    """Encoded records with their offsets, and the provenance of the last one."""

    values: list[tuple[int, bytes]]
    provenance: str
    from_plog: bool


def read_tree(files: Files, path: str) -> dict[str, object]:
    """Return the tree of the metadata at `path`. Raises PlogError, OSError."""
    source = read_source(files, path)
    tree = MetadataTree(from_plog=source.from_plog)
    for offset, value in source.values:
        try:
            tree.replay(decode_known_record(value, KNOWN_RECORDS)[0])
        # KeyError means that a record refers to something that does not exist.
        except (PlogError, KeyError) as error:
            raise PlogError(
                f"{path}: cannot decode the metadata record at offset {offset}: {error}"
            ) from error
    return tree.root(source.provenance, VERSION)


def read_source(files: Files, path: str) -> Source:
    """Read one file, or the newest snapshot of a directory and the records after it."""
    if files.is_dir(path):
        inner = posixpath.join(path, METADATA_DIR)
        return _read_directory(files, inner if files.is_dir(inner) else path)
    data = files.read_file(path)
    from_plog = not files.exists(posixpath.join(posixpath.dirname(path), _RAFT_STATE_FILE))
    if path.endswith(".checkpoint"):
        parsed = parse_snapshot_name(posixpath.basename(path))
        # The name bootstrap.checkpoint does not contain an offset.
        end_offset = parsed.end_offset if parsed else 1
        # The records of a snapshot do not have offsets in the log, but all of them precede its end.
        values = [(end_offset - 1, value) for value in kraft_log_reader.snapshot_values(data)]
        return Source(values, _provenance([data], end_offset - 1), from_plog)
    # A single segment may start anywhere, so records before it are not considered missing.
    values = list(kraft_log_reader.log_values([data], 0 if _begins_at_zero(path) else _start(data)))
    return Source(values, _provenance([data]), from_plog)


def _read_directory(files: Files, directory: str) -> Source:
    listed = files.listdir(directory)
    parsed = [parse_snapshot_name(name) for name in listed]
    snapshots = sorted((name for name in parsed if name is not None), reverse=True)
    problem: UnreadableMetadata | None = None
    # As a broker does, use an older snapshot or the log alone if the newest snapshot is damaged.
    for snapshot in [*snapshots, None]:
        try:
            return _read_since(files, directory, listed, snapshot)
        except UnreadableMetadata as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _read_since(
    files: Files, directory: str, listed: list[str], snapshot: SnapshotName | None
) -> Source:
    """Read a snapshot and the records after it, or the whole log."""
    values: list[tuple[int, bytes]] = []
    start, parts = 0, []
    if snapshot is not None:
        start = snapshot.end_offset
        parts = [files.read_file(posixpath.join(directory, snapshot.file_name))]
        values += [(start - 1, value) for value in kraft_log_reader.snapshot_values(parts[0])]
    segments = [files.read_file(path) for path in _segments(listed, directory, start)]
    if not segments and not parts:
        raise UnreadableMetadata(
            f"cannot find metadata in {directory}: specify a log directory that contains "
            f"{METADATA_DIR}, or a .checkpoint file"
        )
    values += kraft_log_reader.log_values(segments, start)
    # Just after a snapshot, the only segment is empty and does not contain a time or an epoch.
    provenance = _provenance(segments) if any(segments) else _provenance(parts, start - 1)
    from_plog = not files.exists(posixpath.join(directory, _RAFT_STATE_FILE))
    return Source(values, provenance, from_plog)


def _segments(listed: list[str], directory: str, start: int) -> Iterator[str]:
    """Yield the paths of the segments that may contain offsets at or above `start`."""
    parsed = [file_names.parse_segment_file_name(name) for name in listed]
    bases = sorted(
        x.base_offset for x in parsed if x and not x.state and x.suffix == file_names.LOG_SUFFIX
    )
    for number, base in enumerate(bases):
        following = bases[number + 1 : number + 2]
        # A segment ends where the next segment begins, so this one may contain `start`.
        if not following or following[0] > start:
            yield file_names.segment_path(directory, base, file_names.LOG_SUFFIX)


def _begins_at_zero(path: str) -> bool:
    return posixpath.basename(path).startswith("0" * 20)


def _start(data: bytes) -> int:
    return next((header.base_offset for _, header in iter_batches(data)), 0)


def _provenance(parts: list[bytes], offset: int | None = None) -> str:
    """Return the offset, epoch and time of the last batch; `offset` overrides its last offset."""
    last = None
    for data in parts:
        for _, header in iter_batches(data):
            last = header
    if last is None:
        return "offset -1, epoch -1, time never"
    # A batch without timestamps has -1, which would be shown as a time in 1969.
    time = datetime.fromtimestamp(max(last.max_timestamp, 0) / 1000, UTC)
    shown = last.last_offset if offset is None else offset
    return (
        f"offset {shown}, epoch {last.partition_leader_epoch},"
        f" time {time.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}[UTC]"
    )
