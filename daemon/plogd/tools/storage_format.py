"""``plog storage random-uuid``, ``format`` and ``info``: who a log directory belongs to.

A broker gives new directories an identity by itself, so none of this is needed before a first
start. ``format`` is for who wants to choose the cluster's id, or runs Kafka's quickstart as it is
written; ``info`` tells what directories say of themselves. Neither touches any data.
Source: Kafka 4.3 StorageTool, Formatter.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
from collections.abc import Iterator, Sequence

from plog.cli.options import UsageError
from plog.cli.parser import add_examples
from plog.errors import PlogError
from plog.types import uuid_to_text
from plogd.config import load_config
from plogd.features import METADATA_VERSION_NAME
from plogd.log.checkpoints import (
    CorruptCheckpoint,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from plogd.os_files import OsFiles
from plogd.ports import Files

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,249}")


class AlreadyFormatted(PlogError):
    """A directory has an identity that was not to be there."""


def configure_random_uuid(parser: argparse.ArgumentParser) -> None:
    """Print a random UUID, such as a cluster's id."""
    parser.set_defaults(run=lambda arguments: _print([random_uuid()]))


def configure_format(parser: argparse.ArgumentParser) -> None:
    """Give the log directories of a new broker their identity."""
    _add_config(parser)
    parser.add_argument(
        "--cluster-id",
        "-t",
        required=True,
        metavar="ID",
        help="the cluster's id; 'plog storage random-uuid' makes one",
    )
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="leave directories alone that have an identity",
    )
    parser.add_argument(
        "--standalone",
        "-s",
        action="store_true",
        help="taken for the sake of Kafka's quickstart: a plog broker has no quorum",
    )
    add_examples(
        parser,
        (
            "with an id of its own",
            "plog storage format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties",
        ),
    )
    parser.set_defaults(run=run_format)


def configure_info(parser: argparse.ArgumentParser) -> None:
    """Tell what the log directories say of themselves."""
    _add_config(parser)
    add_examples(parser, ("those of a broker's settings", "plog storage info -c server.properties"))
    parser.set_defaults(run=run_info)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", "-c", required=True, metavar="FILE", help="the broker's server.properties"
    )


def run_format(arguments: argparse.Namespace) -> int:
    """Format the directories; 1 if one was formatted before."""
    config = load_config([arguments.config]).config
    lines = format_dirs(
        OsFiles(),
        config.data_dirs,
        MetaProperties(cluster_id=arguments.cluster_id, node_id=config.node_id),
        ignore_formatted=arguments.ignore_formatted,
    )
    return _print(lines)


def run_info(arguments: argparse.Namespace) -> int:
    """Tell of the directories; 1 if something is wrong with them."""
    found, problems = info(OsFiles(), load_config([arguments.config]).config.data_dirs)
    _print(found)
    return 1 if problems else 0


def _print(lines: Iterator[str] | list[str]) -> int:
    for line in lines:
        print(line)
    return 0


def random_uuid() -> str:
    """A random id in its text form, of version 4, never beginning with what looks like an option.

    >>> len(random_uuid())
    22
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = uuid_to_text(bytes(raw))
        if not text.startswith("-"):
            return text


def format_dirs(
    files: Files,
    log_dirs: Sequence[str],
    identity: MetaProperties,
    *,
    ignore_formatted: bool,
) -> Iterator[str]:
    """Write ``meta.properties`` where it is missing; a line for each directory.

    Raises AlreadyFormatted and UsageError before anything is written, OSError.
    """
    if _CLUSTER_ID.fullmatch(identity.cluster_id) is None:
        raise UsageError(
            f"'{identity.cluster_id}' cannot be a cluster's id: take letters, digits, - and _, "
            "as 'plog storage random-uuid' makes them"
        )
    known = {path: read_meta_properties(files, path) for path in sorted(log_dirs)}
    for path, found in known.items():
        if found is None:
            continue
        if (found.cluster_id, found.node_id) != (identity.cluster_id, identity.node_id):
            raise AlreadyFormatted(
                f"{path} belongs to broker {found.node_id} of cluster {found.cluster_id}, not to "
                f"broker {identity.node_id} of cluster {identity.cluster_id}: name another"
            )
        if not ignore_formatted:
            raise AlreadyFormatted(
                f"{path} is already formatted: --ignore-formatted leaves it as it is"
            )
    if None not in known.values():
        yield "All of the log directories are already formatted."
    for path, found in known.items():
        if found is None:
            kind = "metadata" if path == log_dirs[0] else "data"
            files.mkdir(path)
            write_meta_properties(
                files,
                path,
                MetaProperties(
                    cluster_id=identity.cluster_id,
                    node_id=identity.node_id,
                    directory_id=random_uuid(),
                ),
            )
            yield (
                f"Formatting {kind} directory {path} with metadata.version {METADATA_VERSION_NAME}."
            )


def info(files: Files, log_dirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines about directories, and what is wrong with them, which is among the lines."""
    problems: list[str] = []
    found: list[str] = []
    first: MetaProperties | None = None
    for path in sorted(log_dirs):
        if not files.is_dir(path):
            problems.append(
                f"{path} is not a directory" if files.exists(path) else f"{path} does not exist"
            )
            continue
        found.append(path)
        try:
            identity = read_meta_properties(files, path)
        except CorruptCheckpoint as error:
            problems.append(f"Error loading {posixpath.join(path, 'meta.properties')}: {error}")
            continue
        if identity is None:
            problems.append(f"{path} is not formatted.")
        elif first is None:
            first = identity
        elif first.cluster_id != identity.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != identity.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    return _info_lines(found, first, problems), problems


def _info_lines(
    found: list[str], identity: MetaProperties | None, problems: list[str]
) -> list[str]:
    lines: list[str] = []
    if found:
        title = "Found log directory:" if len(found) == 1 else "Found log directories:"
        lines += [title, *(f"  {path}" for path in found), ""]
    if identity is not None:
        name = "node.id" if identity.version else "broker.id"
        values = {
            "cluster.id": identity.cluster_id,
            "directory.id": identity.directory_id,
            name: identity.node_id,
            "version": identity.version,
        }
        shown = ", ".join(f"{key}={value}" for key, value in sorted(values.items()) if value != "")
        lines += [f"Found metadata: {{{shown}}}", ""]
    if problems:
        title = "Found problem:" if len(problems) == 1 else "Found problems:"
        lines += [title, *(f"  {problem}" for problem in problems), ""]
    return lines
