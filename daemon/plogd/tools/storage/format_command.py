"""``plog storage random-uuid``, ``format`` and ``info``: the identity of log directories.

A broker formats new directories itself, so these tools are not needed before its first startup.
With ``format``, an operator can choose the cluster id, create users before the first startup, or
follow Kafka's quickstart unchanged; ``info`` prints the identity of directories. Neither changes
existing data.

A plog broker writes records of a single level of ``metadata.version``, and has neither Kafka's
other features nor a controller quorum. Options that request exactly this are accepted; all other
values are rejected. Source: Kafka 4.3 StorageTool, Formatter.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import time
from collections.abc import Iterator, Sequence

from plog.cli.feature_dependencies import level_of
from plog.cli.options import UsageError, key_value
from plog.cli.parser import add_examples, fail
from plog.errors import PlogError
from plog.release_features import FEATURES, UnknownFeature, release_level
from plog.types import uuid_to_text
from plog.wire.internal.metadata_records import MetadataRecord
from plogd.config import BrokerConfig, load_config
from plogd.features import METADATA_VERSION, METADATA_VERSION_LEVEL, METADATA_VERSION_NAME
from plogd.log.disk.checkpoint_files import (
    CorruptCheckpoint,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from plogd.os_files import OsFiles
from plogd.ports import Files
from plogd.security.unenforced_rules import NOT_ENFORCED
from plogd.tools.metadata.metadata_log_writer import STAGING_DIR, level_record, write_metadata_log
from plogd.tools.storage.import_source import METADATA_DIR
from plogd.tools.storage.scram_records import scram_records

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,249}")


class AlreadyFormatted(PlogError):
    """A directory is already formatted, or belongs to another broker."""


def configure_random_uuid(parser: argparse.ArgumentParser) -> None:
    """Print a random UUID, such as a cluster's id."""
    parser.set_defaults(run=lambda arguments: _print([random_uuid()]))


def configure_format(parser: argparse.ArgumentParser) -> None:
    """Format the log directories of a new broker."""
    _add_config(parser)
    parser.add_argument(
        "--cluster-id",
        "-t",
        required=True,
        metavar="ID",
        help="cluster id; 'plog storage random-uuid' creates one",
    )
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="skip directories that are already formatted",
    )
    parser.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="credential to create, stored in the same way as by 'plog configs' (no listener"
        " requires it yet); also accepts iterations, salt and saltedpassword; may be repeated",
    )
    parser.add_argument(
        "--release-version",
        "-r",
        metavar="RELEASE",
        help=f"metadata level; plog supports only {METADATA_VERSION_NAME}",
    )
    parser.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        type=key_value,
        metavar="NAME=LEVEL",
        help=f"level of a feature; plog supports only {METADATA_VERSION}={METADATA_VERSION_LEVEL},"
        " and level 0 for all other features; may be repeated",
    )
    _add_quorum_options(parser)
    add_examples(
        parser,
        (
            "format with a specific cluster id",
            "plog storage format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties",
        ),
    )
    parser.set_defaults(run=run_format)


def _add_quorum_options(parser: argparse.ArgumentParser) -> None:
    quorum = parser.add_mutually_exclusive_group()
    for flags, what in (
        (
            ("--standalone", "-s"),
            "format for a broker that is its own controller (always true in plog)",
        ),
        (
            ("--no-initial-controllers", "-N"),
            "same as --standalone, because plog does not have a controller quorum",
        ),
    ):
        quorum.add_argument(*flags, action="store_true", help=what)
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY[,…]",
        help="rejected, because plog does not have a controller quorum",
    )


def configure_info(parser: argparse.ArgumentParser) -> None:
    """Print the identity of the log directories."""
    _add_config(parser)
    add_examples(
        parser,
        ("show a broker's log directories", "plog storage info -c server.properties"),
    )
    parser.set_defaults(run=run_info)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", "-c", required=True, metavar="FILE", help="the broker's server.properties file"
    )


def run_format(arguments: argparse.Namespace) -> int:
    """Format the directories, and return the exit code."""
    if arguments.initial_controllers is not None:
        raise UsageError(
            "cannot use --initial-controllers: plog does not have a controller quorum; omit the"
            " option"
        )
    check_levels(arguments.release_version, arguments.feature)
    # Before anything is written, because an option may be invalid.
    users = scram_records(arguments.add_scram, os.urandom)
    config = _load(arguments)
    lines = format_dirs(
        OsFiles(),
        config.data_dirs,
        MetaProperties(cluster_id=arguments.cluster_id, node_id=config.node_id),
        ignore_formatted=arguments.ignore_formatted,
        users=users,
        now_ms=time.time_ns() // 1_000_000,
    )
    _print(lines)
    if users:
        # After the other output, so that the warning is the last line that an operator sees.
        fail(f"SCRAM users: {NOT_ENFORCED}")
    return 0


def check_levels(release: str | None, features: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError or UnknownFeature for levels that a plog broker does not have."""
    if release is not None:
        if any(name == METADATA_VERSION for name, _ in features):
            raise UsageError(
                f"cannot use --release-version with --feature {METADATA_VERSION}: specify only one"
                " of them"
            )
        if release_level(release) != METADATA_VERSION_LEVEL:
            raise UsageError(
                f"cannot use --release-version {release}: a plog broker writes metadata at level"
                f" {METADATA_VERSION_NAME}; omit the option"
            )
    for name, text in features:
        level = level_of(name, text)
        # Kafka also distinguishes unknown features from levels that are not supported.
        if name != METADATA_VERSION and name not in FEATURES:
            raise UnknownFeature(f"cannot use --feature {name}: Kafka does not have this feature")
        has = METADATA_VERSION_LEVEL if name == METADATA_VERSION else 0
        if level != has:
            raise UsageError(
                f"cannot use --feature {name}={level}: a plog broker supports only level {has};"
                " omit the option"
            )


def run_info(arguments: argparse.Namespace) -> int:
    """Print the identity and problems of the directories; return 1 if there are problems."""
    found, problems = info(OsFiles(), _load(arguments).data_dirs)
    _print(found)
    return 1 if problems else 0


def _load(arguments: argparse.Namespace) -> BrokerConfig:
    """Return the settings from ``--config``, as a broker in this environment would use them."""
    state_directories = os.environ.get("STATE_DIRECTORY", "")
    return load_config([arguments.config], state_directories=state_directories).config


def _print(lines: Iterator[str] | list[str]) -> int:
    for line in lines:
        print(line)
    return 0


def random_uuid() -> str:
    """Return a random UUID (version 4) as text that cannot be mistaken for a command-line option.

    >>> len(random_uuid())
    22
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40  # RFC 4122, version 4
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
    users: Sequence[MetadataRecord] = (),
    now_ms: int = 0,
) -> Iterator[str]:
    """Write ``meta.properties`` where it is missing, and yield a line for each directory.

    If there are `users`, also write a metadata log that creates them to the first directory.

    Raises AlreadyFormatted or UsageError before anything is written; may raise OSError later.
    """
    if _CLUSTER_ID.fullmatch(identity.cluster_id) is None:
        raise UsageError(
            f"cannot use cluster id '{identity.cluster_id}': only letters, digits, - and _ are "
            "allowed; 'plog storage random-uuid' creates a valid id"
        )
    # Sorted, as in Kafka's StorageTool. The lines to print are Kafka's, word for word. All
    # directories are checked before the first is written, so that an error leaves all of them
    # unchanged.
    known = {path: read_meta_properties(files, path) for path in sorted(log_dirs)}
    for path, found in known.items():
        if found is None:
            continue
        if (found.cluster_id, found.node_id) != (identity.cluster_id, identity.node_id):
            raise AlreadyFormatted(
                f"cannot format {path} for broker {identity.node_id} of cluster "
                f"{identity.cluster_id}: it belongs to broker {found.node_id} of cluster "
                f"{found.cluster_id}; use another directory"
            )
        if not ignore_formatted:
            raise AlreadyFormatted(
                f"cannot format {path}: it is already formatted; use --ignore-formatted to skip it"
            )
    if users:
        _check_new(files, log_dirs[0], is_formatted=known[log_dirs[0]] is not None)
    if None not in known.values():
        yield "All of the log directories are already formatted."
    for path, found in known.items():
        if found is None:
            # The broker keeps its metadata in the first directory, in the order of log.dirs.
            kind = "metadata" if path == log_dirs[0] else "data"
            files.mkdir(path)
            if users and path == log_dirs[0]:
                _write_users(files, path, users, now_ms)
            write_meta_properties(
                files,
                path,
                MetaProperties(
                    cluster_id=identity.cluster_id,
                    node_id=identity.node_id,
                    directory_id=random_uuid(),  # Kafka's brokers expect one (KIP-858).
                ),
            )
            yield (
                f"Formatting {kind} directory {path} with metadata.version {METADATA_VERSION_NAME}."
            )


def _check_new(files: Files, log_dir: str, *, is_formatted: bool) -> None:
    """Raise AlreadyFormatted if a broker may have used the directory before."""
    # If meta.properties was lost, the directory may still contain metadata.
    if is_formatted or files.exists(posixpath.join(log_dir, METADATA_DIR)):
        raise AlreadyFormatted(
            f"cannot use --add-scram: {log_dir} is already formatted; start the broker, and add"
            " users with 'plog configs --alter --user NAME --add-config"
            " SCRAM-SHA-256=[password=…]'"
        )


def _write_users(files: Files, log_dir: str, users: Sequence[MetadataRecord], now_ms: int) -> None:
    """Write the users' metadata log to the directory."""
    # The log is renamed when it is complete, and `meta.properties` is written later, so an
    # interrupted attempt leaves a directory that is not formatted.
    staging = posixpath.join(log_dir, STAGING_DIR)
    files.mkdir(staging)
    # An earlier attempt that was interrupted may have left files.
    for leftover in files.listdir(staging):
        files.unlink(posixpath.join(staging, leftover))
    write_metadata_log(files, staging, [level_record(), *users], now_ms=now_ms)
    files.rename(staging, posixpath.join(log_dir, METADATA_DIR))
    files.sync_dir(log_dir)


def info(files: Files, log_dirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines to print for the directories, and those lines that report problems."""
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
            # The messages are those of Kafka's StorageTool.
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
        # Version 0 of meta.properties was written in ZooKeeper mode.
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
