"""`plog storage to-zookeeper`: what it requires, and a machine that fails during the conversion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plogd.config import BrokerConfig
from plogd.log.disk.checkpoint_files import read_meta_properties
from plogd.log.disk.log_dir import LogDirUnusable
from plogd.metadata.zookeeper.zookeeper_metadata import WrongCluster
from plogd.tools.storage.import_source import SourceDir, read_source_dir
from plogd.tools.storage.to_zookeeper import (
    MOVED_METADATA_DIR,
    CopyRefused,
    check_sources,
    convert,
)
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_files import SimCrash, SimFiles
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.zookeeper_sim_broker import ZooKeeperSimBroker

DIRS = ("/a", "/b")


def stopped() -> SimFiles:
    """The disk of a broker with a topic, after a clean stop."""
    broker = SimBroker(files=SimFiles(DIRS), log_dirs=DIRS).start()
    create_topic(broker, "t", 2)
    broker.stop()
    return broker.files


def sources_in(files: SimFiles) -> list[SourceDir]:
    return [read_source_dir(files, path) for path in DIRS]


def starts(broker: SimBroker) -> bool:
    """Return whether the directories belong to a broker with this kind of store."""
    try:
        broker.start()
    except LogDirUnusable:
        return False
    # The chroot of the test is empty, which the broker finds out later.
    except WrongCluster:
        return True
    return True


def test_converted_directories_belong_to_a_broker_with_zookeeper() -> None:
    files = stopped()
    sources = sources_in(files)
    convert(files, sources, check_sources(sources, BrokerConfig()))
    identities = [read_meta_properties(files, path) for path in DIRS]
    assert [each.version for each in identities if each] == [0, 0]
    assert [each.directory_id for each in identities if each] == [
        source.identity.directory_id for source in sources
    ]
    assert files.exists(f"/a/{MOVED_METADATA_DIR}")
    assert not starts(SimBroker(files=files.kill(), log_dirs=DIRS))
    assert starts(ZooKeeperSimBroker(files=files.kill(), log_dirs=DIRS))


def test_directories_belong_to_one_of_the_stores_after_a_power_loss_at_any_time() -> None:
    outcomes: list[bool] = []
    for number in range(1, 1000):
        files = stopped().kill()
        sources = sources_in(files)
        files.crash_at(files.operations + number)
        try:
            convert(files, sources, check_sources(sources, BrokerConfig()))
        except SimCrash:
            pass
        else:
            break
        after = files.crash(SimPorts(number).random)
        is_converted = after.exists(f"/a/{MOVED_METADATA_DIR}")
        zookeeper = starts(ZooKeeperSimBroker(files=after.kill(), log_dirs=DIRS))
        embedded = starts(SimBroker(files=after.kill(), log_dirs=DIRS))
        assert (zookeeper, embedded) == (is_converted, not is_converted)
        outcomes.append(is_converted)
    assert len(outcomes) > 5
    assert not outcomes[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"holds_metadata": False}, "is the metadata in ZooKeeper already"),
        ({"cluster_id": "another"}, "belong to different brokers"),
        ({"node_id": 2}, "belong to different brokers"),
    ],
)
def test_directories_that_are_not_those_of_one_embedded_broker_are_refused(
    changes: dict[str, Any], problem: str
) -> None:
    first, second = sources_in(stopped())
    if "holds_metadata" in changes:
        first = replace(first, **changes)
    else:
        second = replace(second, identity=replace(second.identity, **changes))
    with pytest.raises(CopyRefused, match=problem):
        check_sources([first, second], BrokerConfig())


def test_id_that_is_set_must_be_that_of_the_directories() -> None:
    sources = sources_in(stopped())
    config = replace(BrokerConfig(), node_id=2, explicit=frozenset({"node.id"}))
    with pytest.raises(CopyRefused, match=r"belongs to broker 1, .*; set node\.id=1"):
        check_sources(sources, config)
    assert check_sources(sources, replace(config, node_id=-1)) == "/a/__cluster_metadata-0"
