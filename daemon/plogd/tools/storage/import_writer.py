"""Execute a `Plan`: copy Kafka's log directories to new directories, or convert them in place.

A copy leaves the source unchanged. The target contains a directory `__cluster_metadata-1` from the
first step until the last step, which renames it to `__cluster_metadata-0`. A broker does not start
in a directory that contains only the former, so it never mistakes an unfinished copy for a small
cluster. The next run of the import removes an unfinished copy and starts again.

An import in place replaces segments in old formats one by one (segment_conversion.py) and writes
the metadata log to `__cluster_metadata-1`. Then one atomic step exchanges it with Kafka's log.
Before this step, the directory belongs to Kafka, which can still be started; after it, the
directory belongs to plog. Neither broker mistakes the other's metadata directory for data: Kafka
treats every partition of `__cluster_metadata` as its own, and plog moves away partitions of unknown
topics.

All changes go through a Files port, except the copying of large files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from plog.errors import PlogError
from plog.types import uuid_to_text
from plog.wire.internal.metadata_records import MetadataRecord
from plogd.log import file_names
from plogd.log.disk import checkpoint_files, clean_shutdown
from plogd.log.disk.checkpoint_files import MetaProperties
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
)
from plogd.ports import Files
from plogd.tools.metadata.metadata_log_writer import STAGING_DIR, level_record, write_metadata_log
from plogd.tools.storage.import_plan import Plan, PlannedPartition, PlannedTopic
from plogd.tools.storage.import_source import METADATA_DIR
from plogd.tools.storage.segment_conversion import convert_segment, replace_segment

KAFKA_METADATA_ASIDE = "kafka-metadata-before-plog"
"""The directory of Kafka's own metadata log after an import in place; plog ignores it."""

# A conversion changes the positions of batches, so it writes new indexes.
_NOT_COPIED = (file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX)


class TargetUnusable(PlogError):
    """The import cannot write to a target; the message contains the cause and the remedy."""


Copy = Callable[[str, str, Callable[[int], None]], None]
"""Copies one file durably. Arguments: source, target, and a callback for the bytes copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The access to files, time and randomness that an import needs."""

    files: Files
    copy: Copy
    set_modified_ms: Callable[[str, int], None]
    """Sets a file's modification time, which retention uses if records have no timestamps."""
    random_bytes: Callable[[int], bytes]
    now_ms: int
    progress: Callable[[int], None]
    """Called with the number of bytes adopted in each step."""
    check_sources: Callable[[], None]
    """Raises if the sources have changed during the import."""


# -- the metadata log --------------------------------------------------------------------------


def metadata_records(plan: Plan) -> list[MetadataRecord]:
    """Return the records of the metadata log, as plog itself would have written them."""
    # The new log describes the cluster from its beginning, so there is no previous state.
    nothing = MetadataImage()
    changes = list(_changes(plan))
    # Records of partitions contain the id of their topic, which the empty image lacks.
    topics = {str(x.key[1]): x.value for x in changes if isinstance(x.value, TopicValue)}
    return [
        level_record(),
        *(record for change in changes for record in nothing.records_for(change, topics)),
    ]


def _changes(plan: Plan) -> Iterator[Change]:
    for topic in plan.topics:
        yield from _topic_changes(topic, plan.node_id)
    # Sorted, so that equal plans produce equal logs.
    for entity, config in sorted(plan.broker_configs.items()):
        yield _new(("config", "broker", entity), config)
    if plan.next_producer_id:
        yield _new(
            ("producer_ids",),
            ProducerIdsValue(
                broker_id=plan.node_id, broker_epoch=-1, next_producer_id=plan.next_producer_id
            ),
        )


def _topic_changes(topic: PlannedTopic, node_id: int) -> Iterator[Change]:
    assignments = {number: (node_id,) for number in topic.partitions}
    yield _new(("topic", topic.name), TopicValue(topic_id=topic.topic_id, assignments=assignments))
    for number, partition in topic.partitions.items():
        value = PartitionValue(
            leader=node_id,
            leader_epoch=partition.leader_epoch,
            isr=(node_id,),
            partition_epoch=0,
        )
        yield _new(("partition", topic.name, number), value)
    if topic.config:
        yield _new(("config", "topic", topic.name), topic.config)


def _new(key: Key, value: object) -> Change:
    return Change(key=key, value=value, expected=ABSENT)


# -- into new directories ----------------------------------------------------------------------


def check_targets(files: Files, plan: Plan) -> None:
    """Raise TargetUnusable unless every target is empty or an unfinished copy of this plan."""
    first = plan.log_dirs[0]
    begun = files.exists(posixpath.join(first, STAGING_DIR))
    ours = {
        file_names.META_PROPERTIES,
        file_names.LOCK_FILE,
        file_names.CLEAN_SHUTDOWN_FILE,
        STAGING_DIR,
    }
    ours |= {name for offsets in plan.offsets.values() for name in offsets}
    ours |= {_dir_name(partition) for partition in plan.partitions}
    for target in plan.log_dirs:
        present = files.listdir(target) if files.exists(target) else []
        # Checkpoints are written to .tmp files, which an interrupted import leaves.
        foreign = [name for name in present if not (begun and name.removesuffix(".tmp") in ours)]
        # mkfs creates lost+found in the root directory of a file system.
        foreign = [name for name in foreign if name not in (file_names.LOCK_FILE, "lost+found")]
        if foreign:
            raise TargetUnusable(
                f"cannot copy to {target}: it contains {foreign[0]}; empty the directory, or use "
                "a new directory in --log-dirs"
            )


def copy_into(plan: Plan, world: World) -> None:
    """Copy the data to the new directories. Raises NotConvertible, OSError."""
    files = world.files
    first = plan.log_dirs[0]
    staging = posixpath.join(first, STAGING_DIR)
    for target in plan.log_dirs:
        files.mkdir(target)
        # The directory's own entry is in its parent.
        files.sync_dir(posixpath.dirname(posixpath.abspath(target)))
    # The mark of an unfinished copy must be durable before the first file is copied.
    files.mkdir(staging)
    files.sync_dir(first)
    for target in plan.log_dirs:
        _clear_target(files, plan, target)
    for topic in plan.topics:
        for partition in topic.partitions.values():
            _copy_partition(plan, topic, partition, world)
    for target in plan.log_dirs:
        _write_small_files(plan, target, world)
    write_metadata_log(files, staging, metadata_records(plan), now_ms=world.now_ms)
    # Before the copy is marked as complete: a broker may have changed a source in the meantime.
    world.check_sources()
    # With this file, the first startup skips recovery, so the copy must be complete and durable.
    for target in plan.log_dirs:
        if target in plan.clean_dirs:
            clean_shutdown.write_clean_mark(files, target)
    files.rename(staging, posixpath.join(first, METADATA_DIR))
    files.sync_dir(first)


def _clear_target(files: Files, plan: Plan, target: str) -> None:
    """Remove the files of an unfinished copy; `check_targets` rejects any other files."""
    for name in files.listdir(target):
        path = posixpath.join(target, name)
        if name == STAGING_DIR:
            for inner in files.listdir(path):
                files.unlink(posixpath.join(path, inner))
        elif name in (file_names.LOCK_FILE, "lost+found"):
            continue
        elif files.is_dir(path):
            for inner in files.listdir(path):
                files.unlink(posixpath.join(path, inner))
            files.rmdir(path)
        else:
            files.unlink(path)
    files.sync_dir(target)


def _dir_name(partition: PlannedPartition) -> str:
    return file_names.partition_dir_name(partition.facts.topic_partition)


def _copy_partition(
    plan: Plan, topic: PlannedTopic, partition: PlannedPartition, world: World
) -> None:
    facts = partition.facts
    directory = posixpath.join(partition.target, _dir_name(partition))
    world.files.mkdir(directory)
    legacy = set(facts.legacy_segments)
    for name in facts.sizes:
        parsed = file_names.parse_segment_file_name(name)
        if parsed is not None and parsed.base_offset in legacy and parsed.suffix in _NOT_COPIED:
            world.progress(facts.sizes[name])
        elif parsed is not None and parsed.base_offset in legacy and _is_log(name):
            convert_segment(
                world.files,
                facts.directory,
                directory,
                parsed.base_offset,
                may_be_torn=_may_be_torn(plan, partition, parsed.base_offset),
                progress=world.progress,
            )
            modified_ms = world.files.modified_ms(posixpath.join(facts.directory, name))
            world.set_modified_ms(posixpath.join(directory, name), modified_ms)
        elif name != file_names.PARTITION_METADATA:
            world.copy(
                posixpath.join(facts.directory, name),
                posixpath.join(directory, name),
                world.progress,
            )
        else:  # partition.metadata is written below, with the id that the topic keeps or gets.
            world.progress(facts.sizes[name])
    checkpoint_files.write_topic_id(world.files, directory, topic.topic_id)
    # The first call makes the names of the files durable, the second that of the directory.
    world.files.sync_dir(directory)
    world.files.sync_dir(partition.target)


def _is_log(name: str) -> bool:
    return name.endswith(file_names.LOG_SUFFIX)


def _may_be_torn(plan: Plan, partition: PlannedPartition, base_offset: int) -> bool:
    """Return whether a crash may have damaged the end of a segment."""
    # Kafka syncs a segment when it rolls to the next one.
    is_last = base_offset == partition.facts.base_offsets[-1]
    return is_last and partition.target not in plan.clean_dirs


def _write_small_files(plan: Plan, target: str, world: World) -> None:
    for name, offsets in plan.offsets[target].items():
        checkpoint_files.write_offsets(world.files, posixpath.join(target, name), offsets)
    checkpoint_files.write_meta_properties(
        world.files,
        target,
        MetaProperties(
            cluster_id=plan.cluster_id,
            node_id=plan.node_id,
            # A copy needs an id of its own (KIP-858).
            directory_id=uuid_to_text(world.random_bytes(16)),
        ),
    )


# -- in place ----------------------------------------------------------------------------------


def check_in_place(files: Files, plan: Plan) -> None:
    """Raise TargetUnusable if one atomic step cannot replace Kafka's metadata with plog's."""
    aside = posixpath.join(plan.metadata_dir, KAFKA_METADATA_ASIDE)
    if files.exists(aside):
        raise TargetUnusable(
            f"cannot import in place: {aside} exists from an earlier import; move it elsewhere"
        )
    # In ZooKeeper mode, Kafka has no metadata log to exchange, and a rename is always atomic.
    if not files.exists(posixpath.join(plan.metadata_dir, METADATA_DIR)):
        return
    probes = [posixpath.join(plan.metadata_dir, f".plog-import-probe-{n}") for n in (1, 2)]
    try:
        for probe in probes:
            files.open_append(probe).close()
        files.exchange(*probes)
    except OSError as error:
        raise TargetUnusable(
            f"cannot import {plan.metadata_dir} in place: its file system cannot exchange two "
            f"names atomically ({error.strerror}); import without --in-place"
        ) from error
    finally:
        for probe in probes:
            if files.exists(probe):
                files.unlink(probe)


def adopt_in_place(plan: Plan, world: World) -> None:
    """Convert Kafka's directories into plog's. Raises NotConvertible, OSError."""
    files = world.files
    for topic in plan.topics:
        for partition in topic.partitions.values():
            facts = partition.facts
            for base_offset in facts.legacy_segments:
                path = file_names.segment_path(facts.directory, base_offset, file_names.LOG_SUFFIX)
                # Read first, because the new file has the current time, and retention would keep it
                # longer.
                modified_ms = files.modified_ms(path)
                replace_segment(
                    files,
                    facts.directory,
                    base_offset,
                    may_be_torn=_may_be_torn(plan, partition, base_offset),
                    progress=lambda _: None,  # The partition is counted as a whole below.
                )
                world.set_modified_ms(path, modified_ms)
            # Topics that were created before Kafka 2.8 have no id.
            if facts.topic_id is None:
                checkpoint_files.write_topic_id(files, facts.directory, topic.topic_id)
            world.progress(facts.size_bytes)
    staging = posixpath.join(plan.metadata_dir, STAGING_DIR)
    files.mkdir(staging)
    # An earlier import that was interrupted may have left files.
    for leftover in files.listdir(staging):
        files.unlink(posixpath.join(staging, leftover))
    write_metadata_log(files, staging, metadata_records(plan), now_ms=world.now_ms)
    files.sync_dir(plan.metadata_dir)
    place = posixpath.join(plan.metadata_dir, METADATA_DIR)
    if files.exists(place):
        # From this step on, the directories belong to plog.
        files.exchange(staging, place)
        files.sync_dir(plan.metadata_dir)
        files.rename(staging, posixpath.join(plan.metadata_dir, KAFKA_METADATA_ASIDE))
    else:
        files.rename(staging, place)
    files.sync_dir(plan.metadata_dir)
