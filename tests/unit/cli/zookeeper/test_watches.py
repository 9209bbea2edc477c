"""plog/cli/zookeeper/watches.py: active watches and the events for removed ones."""

from __future__ import annotations

import pytest

from plog.cli.zookeeper.watches import (
    ABSENT,
    CHILDREN,
    DATA,
    PERSISTENT,
    RECURSIVE,
    Watches,
)


def _all_kinds() -> Watches:
    watches = Watches()
    for kind in (DATA, ABSENT, CHILDREN, PERSISTENT, RECURSIVE):
        watches.add(kind, "/a")
        watches.add(kind, "/b")
    return watches


def _watched(watches: Watches) -> list[list[str]]:
    [batch] = watches.batches()
    return batch


@pytest.mark.parametrize(
    ("event", "remaining"),
    [
        ("NodeCreated", [["/b"], ["/b"], ["/a", "/b"]]),
        ("NodeDataChanged", [["/b"], ["/b"], ["/a", "/b"]]),
        ("NodeChildrenChanged", [["/a", "/b"], ["/a", "/b"], ["/b"]]),
        ("NodeDeleted", [["/b"], ["/b"], ["/b"]]),
    ],
)
def test_event_removes_one_time_watches(event: str, remaining: list[list[str]]) -> None:
    watches = _all_kinds()
    watches.fired(event, "/a")
    assert _watched(watches) == [*remaining, ["/a", "/b"], ["/a", "/b"]]


@pytest.mark.parametrize(
    ("option", "events"),
    [
        ("c", ["ChildWatchRemoved"]),
        ("d", ["DataWatchRemoved"]),
        ("a", ["DataWatchRemoved", "ChildWatchRemoved", "PersistentWatchRemoved"]),
    ],
)
def test_removal_is_reported_once_per_event_type(option: str, events: list[str]) -> None:
    watches = _all_kinds()
    assert watches.removal_events("/a", option) == events
    watches.remove("/a", option)
    assert watches.removal_events("/a", option) == []
    assert watches.removal_events("/b", option) == events


def test_persistent_watch_is_removed_only_with_all_watches() -> None:
    watches = Watches()
    watches.add(RECURSIVE, "/a")
    assert watches.removal_events("/a", "c") == watches.removal_events("/a", "d") == []
    assert watches.removal_events("/a", "a") == ["PersistentWatchRemoved"]


def test_clear_removes_all_watches() -> None:
    watches = _all_kinds()
    watches.clear()
    assert list(watches.batches()) == []


def test_many_watches_are_split_into_several_requests() -> None:
    watches = Watches()
    paths = [f"/{number:0999d}" for number in range(300)]
    for path in paths:
        watches.add(DATA, path)
    batches = list(watches.batches())
    assert [len(batch[0]) for batch in batches] == [132, 132, 36]
    assert [path for batch in batches for path in batch[0]] == paths
