"""plog/cli/zookeeper/requests.py: requests and responses in ZooKeeper's jute encoding."""

from __future__ import annotations

import pytest

from plog.cli.zookeeper import requests
from plog.cli.zookeeper.text_format import Acl, Stat

_A = b"\0\0\0\2/a"
_STAT_BYTES = b"".join(
    number.to_bytes(size, "big")
    for number, size in zip(range(1, 12), (8, 8, 8, 8, 4, 4, 4, 8, 4, 4, 8), strict=True)
)
_STAT = Stat(*range(1, 12))
_BEFORE = b"header"


@pytest.mark.parametrize(
    ("request_", "kind", "body"),
    [
        (requests.get_data("/a"), 4, _A + b"\0"),
        (requests.exists("/a", watch=True), 3, _A + b"\1"),
        (requests.get_children("/a", watch=True), 12, _A + b"\1"),
        (requests.get_ephemerals("/a"), 103, _A),
        (requests.get_all_children_number("/a"), 104, _A),
        (requests.who_am_i(), 107, b""),
        (requests.add_watch("/a", recursive=False), 106, _A + b"\0\0\0\0"),
        (requests.add_watch("/a", recursive=True), 106, _A + b"\0\0\0\1"),
        (requests.remove_watches("/a", "c"), 18, _A + b"\0\0\0\1"),
        (requests.remove_watches("/a", "d"), 18, _A + b"\0\0\0\2"),
        (requests.remove_watches("/a", "a"), 18, _A + b"\0\0\0\3"),
        (
            requests.reconfig("x", None, "", -1),
            16,
            b"\0\0\0\1x" + b"\xff" * 4 + b"\0" * 4 + b"\xff" * 8,
        ),
        (
            requests.create("/a", None, [Acl("w", "é", 31)], "es", 0),
            1,
            _A + b"\xff" * 4 + b"\0\0\0\1\0\0\0\x1f\0\0\0\1w\0\0\0\2\xc3\xa9\0\0\0\3",
        ),
        (
            requests.create("/a", b"x", [], "t", 258),
            21,
            _A + b"\0\0\0\1x" + b"\0" * 4 + b"\0\0\0\5" + b"\0" * 6 + b"\1\2",
        ),
        (
            requests.set_watches(5, ["/a"], [], ["/a"], [], []),
            101,
            b"\0" * 7 + b"\5" + b"\0\0\0\1" + _A + b"\0" * 4 + b"\0\0\0\1" + _A,
        ),
        (
            requests.set_watches(5, [], [], [], [], ["/a"]),
            105,
            b"\0" * 7 + b"\5" + b"\0" * 16 + b"\0\0\0\1" + _A,
        ),
    ],
)
def test_request_is_encoded_as_jute(
    request_: requests.Request[object], kind: int, body: bytes
) -> None:
    assert (request_.type, request_.serialize()) == (kind, body)


@pytest.mark.parametrize(
    ("request_", "response", "expected"),
    [
        (requests.get_data("/a"), b"\0\0\0\1x" + _STAT_BYTES, (b"x", _STAT)),
        (requests.get_data("/a"), b"\xff" * 4 + _STAT_BYTES, (None, _STAT)),
        (requests.exists("/a"), _STAT_BYTES, _STAT),
        (requests.get_children("/"), b"\0\0\0\1\0\0\0\1a" + _STAT_BYTES, (["a"], _STAT)),
        (requests.get_ephemerals("/"), b"\0\0\0\2" + _A * 2, ["/a", "/a"]),
        (requests.get_ephemerals("/"), b"\xff" * 4, []),
        (requests.get_all_children_number("/"), b"\0\0\1\0", 256),
        (requests.who_am_i(), b"\0\0\0\1\0\0\0\2ip\0\0\0\0", [("ip", "")]),
        (requests.create("/a", None, [], "", 0), _A, "/a"),
        (requests.reconfig(None, "1", None, 0), b"\0\0\0\1x" + _STAT_BYTES, (b"x", _STAT)),
        (requests.add_watch("/a", recursive=True), b"\0\0\0\0", None),
    ],
)
def test_response_is_decoded_and_announced(
    request_: requests.Request[object], response: bytes, expected: object
) -> None:
    announced: list[str] = []
    request_.on_response = lambda: announced.append("response")
    assert request_.deserialize(_BEFORE + response, len(_BEFORE)) == expected
    assert announced == ["response"]


def test_event_has_a_type_and_a_path() -> None:
    state = b"\0\0\0\3"
    assert requests.read_event(b"\0\0\0\4" + state + _A, 0) == ("NodeChildrenChanged", "/a")
    assert requests.read_event(_BEFORE + b"\0\0\0\x63" + state + _A, 6) == (None, "/a")
