"""``plog storage to-zookeeper``: copy the metadata of a stopped single broker to ZooKeeper.

The command reads the metadata log, writes its contents below an empty chroot, and then converts the
log directories, so that the broker starts with ``plog.metadata.store=zookeeper``. The last znode is
the cluster id, and the last step on the disk renames the metadata log. Until then, the broker can
still be started with its own metadata.

image_copy.py makes the changes from the metadata.
"""

from __future__ import annotations

import argparse
import posixpath
from contextlib import closing
from typing import TYPE_CHECKING

from plog.cli.parser import add_examples
from plog.error_base import PlogError
from plogd.config import BrokerConfig, load_config
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import MetaProperties, write_meta_properties
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import Written
from plogd.os_files import OsFiles
from plogd.ports import Files
from plogd.tools.metadata.shell import read_source
from plogd.tools.storage.image_copy import image_of, shared_changes, topic_writes
from plogd.tools.storage.import_source import SourceDir, SourceLocks, read_source_dir

if TYPE_CHECKING:
    from plogd.tools.storage.store_connection import StoreConnection

MOVED_METADATA_DIR = "embedded-metadata-before-zookeeper"
"""The metadata log after the copy; brokers ignore it."""


class CopyRefused(PlogError):
    """The metadata cannot be copied; the message contains the cause and the remedy."""


def configure_to_zookeeper(parser: argparse.ArgumentParser) -> None:
    """Copy the metadata of a stopped broker to ZooKeeper."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        required=True,
        help="server.properties file with which the broker will be started: with its log.dirs,"
        " plog.metadata.store=zookeeper and zookeeper.connect",
    )
    add_examples(
        parser,
        ("copy the metadata of a broker", "plog storage to-zookeeper --config server.properties"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Copy the metadata, and return the exit code."""
    # The other tools of `plog storage` need neither Twisted nor the broker.
    from plogd.tools.storage.store_connection import StoreConnection

    config = load_config([arguments.config]).config
    if config.has_embedded_store:
        raise CopyRefused(
            f"{arguments.config} does not contain plog.metadata.store=zookeeper and"
            " zookeeper.connect, with which the broker will be started"
        )
    files = OsFiles()
    # Locked until the end, so that no broker changes the metadata in between.
    with closing(SourceLocks(config.data_dirs, to_change=True)):
        sources = [read_source_dir(files, path) for path in config.data_dirs]
        metadata_dir = check_sources(sources, config)
        image = image_of(read_source(files, metadata_dir).values)
        with closing(StoreConnection(config, sources[0].identity.node_id)) as connection:
            copy(image, connection, sources[0].identity.cluster_id)
        convert(files, sources, metadata_dir)
    topics = len(image.load(("topic",)))
    print(f"copied the metadata of {topics} topics to ZooKeeper at {config.zookeeper_connect}")
    print(f"start the broker with: plog-broker --config {arguments.config}")
    return 0


def check_sources(sources: list[SourceDir], config: BrokerConfig) -> str:
    """Return the directory with the metadata log. Raises CopyRefused."""
    holders = [source.path for source in sources if source.holds_metadata]
    if len(holders) != 1:
        raise CopyRefused(
            f"cannot find {file_names.METADATA_DIR} in log.dirs; is the metadata in ZooKeeper"
            " already?"
            if not holders
            else f"{' and '.join(holders)} contain {file_names.METADATA_DIR}; correct log.dirs"
        )
    first = sources[0].identity
    for source in sources:
        if (source.identity.cluster_id, source.identity.node_id) != (
            first.cluster_id,
            first.node_id,
        ):
            raise CopyRefused(
                f"{source.path} and {sources[0].path} belong to different brokers; correct log.dirs"
            )
    if "node.id" in config.explicit and config.node_id not in (-1, first.node_id):
        raise CopyRefused(
            f"{sources[0].path} belongs to broker {first.node_id}, but node.id is {config.node_id};"
            f" set node.id={first.node_id}"
        )
    return posixpath.join(holders[0], file_names.METADATA_DIR)


def copy(image: MetadataImage, connection: StoreConnection, cluster_id: str) -> None:
    """Write all metadata to an empty chroot. Raises CopyRefused or ZooKeeperError."""
    store, settle = connection.store, connection.settle
    existing = settle(store.cluster_id(""))
    term = settle(store.campaign())
    if existing or store.load(("topic",)) or store.load(("broker",)):
        raise CopyRefused(
            "the chroot in zookeeper.connect is not empty: "
            + (f"it contains cluster {existing}" if existing else "it contains topics or brokers")
            + "; use another chroot, or remove it with plog zookeeper-shell and deleteall"
        )
    writes = [(write, term) for write in topic_writes(image, store.max_atomic_changes)]
    writes += [([change], None) for change in shared_changes(image)]
    for changes, of_term in writes:
        outcomes = settle(store.write_atomic(changes, of_term))
        if not all(isinstance(outcome, Written) for outcome in outcomes):
            raise CopyRefused(
                f"cannot write {changes[0].key} to ZooKeeper: another program changes the same"
                " chroot; remove it with plog zookeeper-shell and deleteall, and try again"
            )
    # Last, so that no broker takes an incomplete copy for a cluster.
    settle(store.cluster_id(cluster_id))


def convert(files: Files, sources: list[SourceDir], metadata_dir: str) -> None:
    """Convert the log directories to those of a broker with ZooKeeper. Raises OSError."""
    for source in sources:
        identity = source.identity
        changed = MetaProperties(
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            directory_id=identity.directory_id,
            version=0,
        )
        write_meta_properties(files, source.path, changed)
    folder = posixpath.dirname(metadata_dir)
    # From this step on, a broker with the embedded store does not start.
    files.rename(metadata_dir, posixpath.join(folder, MOVED_METADATA_DIR))
    files.sync_dir(folder)
