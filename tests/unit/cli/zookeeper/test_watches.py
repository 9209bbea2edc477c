"""plog/cli/zookeeper/watches.py: what is watched still, and what is told of what is revoked."""

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
    ("event", "left"),
    [
        ("NodeCreated", [["/b"], ["/b"], ["/a", "/b"]]),
        ("NodeDataChanged", [["/b"], ["/b"], ["/a", "/b"]]),
        ("NodeChildrenChanged", [["/a", "/b"], ["/a", "/b"], ["/b"]]),
        ("NodeDeleted", [["/b"], ["/b"], ["/b"]]),
    ],
)
def test_an_event_ends_the_watches_that_fire_once(event: str, left: list[list[str]]) -> None:
    watches = _all_kinds()
    watches.fired(event, "/a")
    assert _watched(watches) == [*left, ["/a", "/b"], ["/a", "/b"]]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("c", ["ChildWatchRemoved"]),
        ("d", ["DataWatchRemoved"]),
        ("a", ["DataWatchRemoved", "ChildWatchRemoved", "PersistentWatchRemoved"]),
    ],
)
def test_what_is_revoked_is_told_once_for_each_kind(option: str, told: list[str]) -> None:
    watches = _all_kinds()
    assert watches.revocable("/a", option) == told
    watches.revoke("/a", option)
    assert watches.revocable("/a", option) == []
    assert watches.revocable("/b", option) == told


def test_watches_that_last_are_revoked_with_all_others_only() -> None:
    watches = Watches()
    watches.add(RECURSIVE, "/a")
    assert watches.revocable("/a", "c") == watches.revocable("/a", "d") == []
    assert watches.revocable("/a", "a") == ["PersistentWatchRemoved"]


def test_nothing_is_watched_once_the_session_is_over() -> None:
    watches = _all_kinds()
    watches.clear()
    assert list(watches.batches()) == []


def test_many_watches_are_asked_for_in_several_requests() -> None:
    watches = Watches()
    paths = [f"/{number:0999d}" for number in range(300)]
    for path in paths:
        watches.add(DATA, path)
    batches = list(watches.batches())
    assert [len(batch[0]) for batch in batches] == [132, 132, 36]
    assert [path for batch in batches for path in batch[0]] == paths
