"""``plog storage import``: adopt the data of a stopped Apache Kafka broker; docs/adoption.md.

The command reads the old directories, makes a plan (import_plan.py), executes it (import_writer.py)
and prints a summary. Before it changes anything, it reports all problems together, one per line. It
runs in the foreground, without a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from plog.cli.output import progress
from plog.cli.parser import add_examples
from plog.errors import PlogError
from plog.types import Uuid, uuid_to_text
from plogd.config import BrokerConfig, load_config
from plogd.os_files import OsFiles
from plogd.ports import Files
from plogd.tools.storage.cluster_state import ClusterState
from plogd.tools.storage.file_copy import can_clone, copy_file
from plogd.tools.storage.import_plan import (
    Plan,
    PlanOptions,
    check_sources,
    is_kraft,
    make_plan,
    not_imported_lines,
    state_from_logs,
)
from plogd.tools.storage.import_source import (
    METADATA_DIR,
    SourceDir,
    SourceLocks,
    read_kraft_metadata,
    read_source_dir,
    unfinished_transactions,
)
from plogd.tools.storage.import_writer import (
    TargetUnusable,
    World,
    adopt_in_place,
    check_in_place,
    check_targets,
    copy_into,
)
from plogd.tools.storage.log_inspection import LogFacts, inspect_log
from plogd.tools.storage.zookeeper_state import read_state, read_znodes

_SPARE_BYTES = 64 << 20
"""Disk space to leave free in addition to the imported data."""
_RAFT_STATE_FILE = "quorum-state"


class Refused(PlogError):
    """The import is impossible; the message has one line for each reason."""


def configure_import(parser: argparse.ArgumentParser) -> None:
    """Adopt the data of a stopped Apache Kafka broker."""
    parser.add_argument(
        "dirs",
        nargs="+",
        metavar="DIR",
        help="all log directories (log.dirs) of the stopped broker",
    )
    parser.add_argument(
        "--log-dirs",
        metavar="TARGET[,TARGET]",
        help="new or empty directories for plog (default: log.dirs of --config)",
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="convert DIR itself instead of copying it; a copy of Kafka's own metadata is kept",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="server.properties file with which plog will be started"
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help="ZooKeeper from which to read the topics and settings of a broker in ZooKeeper mode"
        " (never modified)",
    )
    parser.add_argument(
        "--skip-incomplete",
        action="store_true",
        help="skip topics with missing or incomplete partitions",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what the import would do, without changing anything",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_examples(
        parser,
        (
            "copy two directories into one",
            "plog storage import /data/kafka-1 /data/kafka-2 --log-dirs /data/plog",
        ),
        (
            "print what an in-place import would do",
            "plog storage import /data/kafka --in-place --dry-run",
        ),
    )
    parser.set_defaults(run=lambda arguments: run(arguments, parser))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run the import, and return the exit code."""
    config = load_config([arguments.config]).config if arguments.config else None
    targets = _targets(arguments, config, parser)
    files = OsFiles()
    try:
        change = arguments.in_place and not arguments.dry_run
        # The locks are held from the first read to the last write, so that no broker changes the
        # directories in between.
        with closing(SourceLocks(arguments.dirs, to_change=change)) as locks:
            options = PlanOptions(
                targets=targets,
                config=config,
                skip_incomplete=arguments.skip_incomplete,
            )
            plan = read_and_plan(files, arguments.dirs, arguments.zookeeper, options)
            _check_targets(files, plan, dry_run=arguments.dry_run)
            if not arguments.dry_run:
                _carry_out(files, plan, locks)
            _print_summary(plan, arguments)
    except (PlogError, OSError) as error:
        # Scripts read the problems from standard output; the exit code comes from the caller.
        if arguments.json:
            print(json.dumps({"problems": str(error).splitlines()}, indent=2))
        raise
    return 0


def _targets(
    arguments: argparse.Namespace, config: BrokerConfig | None, parser: argparse.ArgumentParser
) -> tuple[str, ...]:
    """Return the new log.dirs; empty with --in-place."""
    if arguments.in_place:
        if arguments.log_dirs:
            parser.error(
                "cannot use --log-dirs with --in-place, which keeps the existing directories"
            )
        return ()
    if arguments.log_dirs:
        targets = [path.strip() for path in arguments.log_dirs.split(",") if path.strip()]
    elif config is not None and config.log_dirs:
        targets = list(config.log_dirs)
    else:
        parser.error("the target is missing: use --log-dirs TARGET, or --in-place")
    # A symbolic link could hide that two paths are the same directory.
    sources = [os.path.realpath(path) for path in arguments.dirs]
    for target in targets:
        real = os.path.realpath(target)
        if any(os.path.commonpath([real, source]) in (real, source) for source in sources):
            parser.error(f"{target} overlaps a directory to import; use --in-place")
    return tuple(targets)


# -- reading -----------------------------------------------------------------------------------


def read_and_plan(
    files: Files, paths: Sequence[str], zookeeper: str | None, options: PlanOptions
) -> Plan:
    """Read the sources and make the plan. Raises Refused and other PlogErrors."""
    sources = [read_source_dir(files, path) for path in paths]
    # First, because the next steps use only the identity of the first directory.
    _refuse(check_sources(sources))
    _refuse_plogs(files, sources)
    state: ClusterState | None = None
    if is_kraft(sources):
        state = _read_kraft(files, sources, zookeeper)
    elif zookeeper is not None:
        identity = sources[0].identity
        state = read_state(
            read_znodes(zookeeper), cluster_id=identity.cluster_id, node_id=identity.node_id
        )
    # Without metadata, any segment may contain old message formats.
    logs = _inspect(files, sources, old_formats=state is None or state.may_hold_old_formats)
    plan = make_plan(
        sources,
        state or state_from_logs(logs, sources[0].identity.node_id),
        logs,
        unfinished_transactions(files, logs),
        options,
        _new_topic_id,
    )
    _refuse(plan.problems)
    return plan


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise Refused("\n".join(problems))


def _refuse_plogs(files: Files, sources: Sequence[SourceDir]) -> None:
    # Kafka's controllers keep their Raft state next to the metadata log. Without this file, plog
    # wrote the log.
    for source in sources:
        metadata_dir = posixpath.join(source.path, METADATA_DIR)
        from_plog = not files.exists(posixpath.join(metadata_dir, _RAFT_STATE_FILE))
        if source.holds_metadata and from_plog:
            raise Refused(
                f"cannot import {source.path}: plog wrote its {METADATA_DIR}; instead of importing"
                " it, start plog with this directory in log.dirs"
            )


def _read_kraft(files: Files, sources: Sequence[SourceDir], zookeeper: str | None) -> ClusterState:
    if zookeeper is not None:
        raise Refused("cannot use --zookeeper: the broker is in KRaft mode; omit the option")
    holders = [source.path for source in sources if source.holds_metadata]
    if not holders:
        raise Refused(
            f"cannot find {METADATA_DIR} in the directories; also specify Kafka's "
            "metadata.log.dir, or all of its log.dirs"
        )
    return read_kraft_metadata(files, holders[0])


def _inspect(files: Files, sources: Sequence[SourceDir], *, old_formats: bool) -> list[LogFacts]:
    return [
        inspect_log(
            files,
            source.path,
            topic_partition,
            clean=source.clean,
            may_hold_old_formats=old_formats,
        )
        for source in sources
        for topic_partition in source.partitions
    ]


def _new_topic_id() -> Uuid:
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40  # RFC 4122, version 4
        raw[8] = raw[8] & 0x3F | 0x80
        # Like Kafka, avoid ids whose text looks like a command-line option.
        if not uuid_to_text(bytes(raw)).startswith("-"):
            return bytes(raw)


# -- writing -----------------------------------------------------------------------------------


def _check_targets(files: OsFiles, plan: Plan, *, dry_run: bool) -> None:
    if not plan.in_place:
        check_targets(files, plan)
    elif not dry_run:
        # `check_in_place` writes files to probe the file system, which a dry run must not do.
        check_in_place(files, plan)
    needed = _needed_bytes(plan)
    for path, size in needed.items():
        existing = path
        # A target that does not exist yet gets the file system of its nearest parent.
        while not os.path.exists(existing):
            existing = os.path.dirname(os.path.abspath(existing))
        status = os.statvfs(existing)
        # Without the blocks that are reserved for root, which f_bfree includes.
        free = status.f_bavail * status.f_frsize
        # The probe writes a file, so it runs only if space seems to be short.
        if size + _SPARE_BYTES > free and not _shares_blocks(plan, path, existing, dry_run):
            raise TargetUnusable(
                f"not enough space in {path}: {_mib(free)} are free, {_mib(size + _SPARE_BYTES)}"
                " are needed; free space, specify directories with more space in --log-dirs, or"
                " use --in-place"
            )


def _needed_bytes(plan: Plan) -> dict[str, int]:
    """Return the maximum number of bytes to write, by the first directory of each file system."""
    needed: dict[str, int] = {}
    for path in plan.log_dirs:
        mine = [x for x in plan.partitions if x.target == path]
        if not plan.in_place:
            needed[path] = sum(x.facts.size_bytes for x in mine)
        else:
            # Segments are converted one by one, so at most one segment exists twice at any time.
            logs = [
                size for x in mine if x.facts.legacy_segments for size in x.facts.sizes.values()
            ]
            needed[path] = max(logs, default=0)
    by_device: dict[int, list[str]] = {}
    for path in needed:
        existing = path
        while not os.path.exists(existing):
            existing = os.path.dirname(os.path.abspath(existing))
        by_device.setdefault(os.stat(existing).st_dev, []).append(path)
    return {
        # Conversions run sequentially, so their space is not needed at the same time.
        paths[0]: (max if plan.in_place else sum)(needed[path] for path in paths)
        for paths in by_device.values()
    }


def _shares_blocks(plan: Plan, path: str, existing: str, dry_run: bool) -> bool:
    """Return whether a copy would share the source's blocks and therefore take no space."""
    # `can_clone` writes a file, which a dry run must not do.
    if plan.in_place or dry_run or not plan.partitions:
        return False
    facts = plan.partitions[0].facts
    # Any file will do, because cloning depends only on the two file systems.
    source = posixpath.join(facts.directory, next(iter(facts.sizes)))
    return os.stat(source).st_dev == os.stat(existing).st_dev and can_clone(source, existing)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def _carry_out(files: OsFiles, plan: Plan, sources: SourceLocks) -> None:
    with progress(plan.size_bytes, "B", scale=True) as advance:
        world = World(
            files=files,
            copy=copy_file,
            set_modified_ms=lambda path, ms: os.utime(path, (ms / 1000, ms / 1000)),
            random_bytes=os.urandom,
            now_ms=int(time.time() * 1000),
            progress=advance,
            check_sources=sources.check_still,
        )
        if plan.in_place:
            # The directories are already locked as sources.
            adopt_in_place(plan, world)
            return
        locks = _lock_targets(files, plan)
        try:
            copy_into(plan, world)
        finally:
            for unlock in locks:
                unlock()


def _lock_targets(files: OsFiles, plan: Plan) -> list[Callable[[], None]]:
    locks: list[Callable[[], None]] = []
    for target in plan.log_dirs:
        files.mkdir(target)
        try:
            locks.append(files.lock(posixpath.join(target, ".lock")))
        except BlockingIOError:
            for unlock in locks:
                unlock()
            raise TargetUnusable(
                f"cannot lock {target}: in use by a broker or another import; use another directory"
            ) from None
    return locks


# -- summary -----------------------------------------------------------------------------------


def summary(plan: Plan, *, dry_run: bool) -> dict[str, Any]:
    """Return the summary that --json prints."""
    return {
        "dry_run": dry_run,
        "in_place": plan.in_place,
        "cluster_id": plan.cluster_id,
        "node_id": plan.node_id,
        "log_dirs": list(plan.log_dirs),
        "clean": set(plan.log_dirs) <= plan.clean_dirs,
        "topics": {topic.name: len(topic.partitions) for topic in plan.topics},
        "partitions": len(plan.partitions),
        "bytes": plan.size_bytes,
        "converted_segments": plan.converted_segments,
        "next_producer_id": plan.next_producer_id,
        "settings": plan.settings,
        "warnings": plan.warnings,
        "not_imported": dict(sorted(plan.state.not_imported.items())),
    }


def _print_summary(plan: Plan, arguments: argparse.Namespace) -> None:
    for warning in plan.warnings:
        print(f"plog: warning: {warning}", file=sys.stderr)
    if arguments.json:
        # Warnings go to standard error, so the output is a single JSON object.
        print(json.dumps(summary(plan, dry_run=arguments.dry_run), indent=2))
        return
    verb = "would adopt" if arguments.dry_run else "adopted"
    print(
        f"{verb} {len(plan.topics)} topics, {len(plan.partitions)} partitions, "
        f"{_mib(plan.size_bytes)} of cluster {plan.cluster_id}"
    )
    if plan.converted_segments:
        verb = "would convert" if arguments.dry_run else "converted"
        print(f"{verb} {plan.converted_segments} segments from older formats to magic 2")
    for line in not_imported_lines(plan.state.not_imported):
        print(line)
    settings = " ".join(f"-o {name}={value}" for name, value in plan.settings.items())
    print(f"start the broker with: plog-broker {settings}")
