"""The id of a broker for which none is set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plog.error_base import PlogError
from plogd.config import BrokerConfig
from plogd.log.disk.checkpoint_files import CorruptCheckpoint
from plogd.node_id import find_node_id
from plogd.tap import Options

SETTINGS = ["-o", "plog.metadata.store=zookeeper", "-o", "zookeeper.connect=zk:1/c"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of the ZooKeepers that were asked for a number; they return 1, 2 and so on."""
    addresses: list[str] = []

    def next_in_sequence(connect: str, **_: Any) -> int:
        addresses.append(connect)
        return len(addresses)

    monkeypatch.setattr("plog.zookeeper.broker_sequence.next_in_sequence", next_in_sequence)
    return addresses


def config(*log_dirs: Path) -> BrokerConfig:
    return replace(
        BrokerConfig(),
        log_dirs=tuple(map(str, log_dirs)),
        plog_metadata_store="zookeeper",
        zookeeper_connect="zk:1/c",
    )


def belongs_to(log_dir: Path, broker_id: int) -> None:
    log_dir.mkdir()
    text = f"version=0\nbroker.id={broker_id}\ncluster.id=x\n"
    (log_dir / "meta.properties").write_text(text)


def options(*more: str) -> Options:
    found = Options()
    found.parseOptions([*SETTINGS, *more])  # type: ignore[no-untyped-call]
    return found


def test_id_of_new_directories_is_a_number_of_zookeeper_above_those_that_can_be_set(
    tmp_path: Path, asked: list[str]
) -> None:
    assert find_node_id(config(tmp_path / "missing")) == 1001
    assert asked == ["zk:1/c"]


def test_id_in_a_directory_is_kept(tmp_path: Path, asked: list[str]) -> None:
    belongs_to(tmp_path / "b", 1007)
    assert find_node_id(config(tmp_path / "a", tmp_path / "b")) == 1007
    assert asked == []


def test_unreadable_directory_does_not_lead_to_a_new_id(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").mkdir()
    with pytest.raises(PlogError, match=r"Is a directory; repair the directory, or set node\.id"):
        find_node_id(config(tmp_path / "a", tmp_path / "b"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_text("version=0\n")
    with pytest.raises(CorruptCheckpoint):
        find_node_id(config(tmp_path / "b"))
    assert asked == []


def test_reload_keeps_the_id(tmp_path: Path, asked: list[str]) -> None:
    found = options("-o", f"log.dirs={tmp_path}")
    found.assign_node_id()
    assert found.loaded is not None
    assert found.loaded.config.node_id == found.load().config.node_id == 1001
    assert asked == ["zk:1/c"]


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_id_that_is_set_is_used(tmp_path: Path, asked: list[str], name: str) -> None:
    found = options("-o", f"log.dirs={tmp_path}", "-o", f"{name}=3")
    found.assign_node_id()
    assert found.loaded is not None
    assert found.loaded.config.node_id == 3
    assert asked == []
