"""Commands setquota, listquota and delquota, which limit the znodes and bytes of a tree.

Pure: the commands only use the ports in ports.py. A quota consists of two znodes at the tree's path
below ``/zookeeper/quota``: the limits, and the usage that the servers count. For a soft limit, a
server only logs a warning; it enforces a hard limit if ``enforceQuota`` is set. Quotas cannot be
nested.

Source: ZooKeeper 3.8 SetQuotaCommand, ListQuotaCommand, DelQuotaCommand, StatsTrack, Quotas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.cli.zookeeper.ports import (
    ANY_VERSION,
    OPEN_TO_ALL,
    Command,
    Console,
    ZooKeeper,
    paths_below,
)
from plog.cli.zookeeper.text_format import CommandRefused, Given, NoSuchNode, check_path, join_path

_ROOT: Final = "/zookeeper/quota"
_LIMITS: Final = "zookeeper_limits"
_COUNTED: Final = "zookeeper_stats"
_FIELDS: Final = {"n": "count", "b": "bytes", "N": "countHardLimit", "B": "byteHardLimit"}
_OPTIONS: Final = {
    "n": "num soft quota",
    "b": "bytes soft quota",
    "N": "num hard quota",
    "B": "bytes hard quota",
}
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1

Track = dict[str, int]
"""Limits or usage, by the names in `_FIELDS`; -1 or a missing name means no limit."""


def parse_track(data: bytes | None) -> Track:
    """Parse the data of a quota's znode. Raises CommandRefused.

    >>> parse_track(b"count=5,bytes=-1=;byteHardLimit=7")
    {'count': 5, 'bytes': -1, 'byteHardLimit': 7}
    """
    text = (data or b"").decode(errors="replace")
    track: Track = {}
    for pair in text.replace(";", ",").split(","):
        name, _, value = pair.partition("=")
        # ZooKeeper appends an equals sign to the bytes, so that old servers, which do not know hard
        # limits, stop parsing there.
        value = value.rstrip("=")
        try:
            track.update({name: int(value or "-1")} if name else {})
        except ValueError:
            raise CommandRefused(f"cannot parse '{text}' as a quota") from None
    return track


def track_text(track: Track) -> str:
    """Return `track` in the format of a quota's znode.

    >>> track_text({"byteHardLimit": 7, "count": 5})
    'count=5,bytes=-1=;byteHardLimit=7'
    """
    more = sorted(track.keys() - {"count", "bytes"})
    text = f"count={track.get('count', -1)},bytes={track.get('bytes', -1)}"
    return text + ("=" if more else "") + "".join(f";{name}={track[name]}" for name in more)


# -- setting -----------------------------------------------------------------------------------


def _check_one(given: Given) -> None:
    """Check that exactly one limit is given. Raises CommandRefused."""
    if not given.options:
        options = ", ".join(f"-{letter} {text}" for letter, text in _OPTIONS.items())
        raise CommandRefused(f"Missing required option: [{options}]")
    _check_at_most_one(given)


def _check_at_most_one(given: Given) -> None:
    options = list(given.options)
    if len(options) > 1:
        raise CommandRefused(
            f"The option '{options[1]}' was specified but an option from this group "
            f"has already been selected: '{options[0]}'"
        )


def _set(console: Console, given: Given) -> Iterator[str]:
    path = given.words[0]
    # A quota of the quotas' own tree would count its own znodes.
    if path.startswith(_ROOT):
        console.note(f"cannot set a quota under the path: {_ROOT}")
        return
    [(option, text)] = given.options.items()
    problem = _limit_problem(option, text)
    if problem:
        console.note(problem)
        return
    client = console.client
    if client.exists(check_path(path)) is None:
        raise CommandRefused(f"{path} does not exist.")
    # Servers count a znode only for one quota, so quotas must not be nested.
    _refuse_quota_inside(client, path)
    _refuse_quota_around(client, path)
    quota_path = _make_parents(client, path)
    limits_path, counted_path = f"{quota_path}/{_LIMITS}", f"{quota_path}/{_COUNTED}"
    limit = {_FIELDS[option]: int(text)}
    is_new = client.exists(limits_path) is None
    if is_new:
        # The limits znode of a new quota contains all four limits.
        limits = dict.fromkeys(_FIELDS.values(), -1) | limit
        _create(client, limits_path, track_text(limits).encode())
        _create(client, counted_path, track_text({"count": 0, "bytes": 0}).encode())
    else:
        limits = parse_track(client.get(limits_path)[0]) | limit
    # As in ZooKeeper's shell, a limit is set even if the current usage exceeds it.
    yield from _warnings(limits, parse_track(client.get(counted_path)[0]))
    if not is_new:
        client.set(limits_path, track_text(limits).encode(), ANY_VERSION)


def _limit_problem(option: str, text: str) -> str | None:
    is_count = option in "nN"
    try:
        limit = int(text)
    except ValueError:
        limit = None
    # Python's integers are unlimited, but ZooKeeper parses an int or a long of Java.
    if limit is None or not -_LONG_MAX <= limit <= (_INT_MAX if is_count else _LONG_MAX):
        return "NumberFormatException happens when parsing the option value"
    if is_count and limit <= 0:
        return "the num quota must be greater than zero"
    if limit < 0:
        return "the bytes quota must be greater than or equal to zero"
    return None


def _refuse_quota_inside(client: ZooKeeper, path: str) -> None:
    own = check_path(_ROOT + path)
    for each in (own, *paths_below(client, own)):
        if each != own and client.exists(f"{each}/{_LIMITS}") is not None:
            inner = each.removeprefix(_ROOT)
            raise CommandRefused(f"{path} has a child {inner} which has a quota")


def _refuse_quota_around(client: ZooKeeper, path: str) -> None:
    names = path.split("/")[1:-1]
    outer = ""
    for name in names:
        outer += f"/{name}"
        if client.exists(f"{_ROOT}{outer}/{_LIMITS}") is not None:
            raise CommandRefused(f"{path} has a parent {outer} which has a quota")


def _make_parents(client: ZooKeeper, path: str) -> str:
    """Create missing parents of a quota's two znodes, and return the path of the last parent."""
    parent = ""
    for name in f"{_ROOT}{path}".split("/")[1:]:
        parent += f"/{name}"
        # Servers create only the root of the quotas.
        if client.exists(parent) is None:
            _create(client, parent, None)
    return parent


def _create(client: ZooKeeper, path: str, data: bytes | None) -> None:
    client.create(path, data, [OPEN_TO_ALL], "", 0)


def _warnings(limits: Track, counted: Track) -> Iterator[str]:
    """Yield a warning for each limit that the current usage exceeds."""
    for noun, soft, hard in (
        ("count", "count", "countHardLimit"),
        ("bytes", "bytes", "byteHardLimit"),
    ):
        existing = counted.get(noun, -1)
        if any(-1 < limits.get(each, -1) < existing for each in (soft, hard)):
            yield (
                f"[Warning]: the {noun} quota you create is less than the existing "
                f"{noun}:{existing}"
            )


# -- listing and deleting ----------------------------------------------------------------------


def _list(console: Console, given: Given) -> Iterator[str]:
    path = given.words[0]
    limits_path = f"{_ROOT}{path}/{_LIMITS}"
    console.note(f"absolute path is {limits_path}")
    try:
        limits, _ = console.client.get(check_path(limits_path))
        counted, _ = console.client.get(f"{_ROOT}{path}/{_COUNTED}")
    except NoSuchNode:
        console.note(f"quota for {path} does not exist.")
        return
    yield f"Output quota for {path} {track_text(parse_track(limits))}"
    yield f"Output stat for {path} {track_text(parse_track(counted))}"


def _delete(console: Console, given: Given) -> Iterator[str]:
    path, client = given.words[0], console.client
    quota_path = _ROOT + path
    limits_path = check_path(f"{quota_path}/{_LIMITS}")
    if client.exists(limits_path) is None:
        yield f"Quota does not exist for {path}"
    elif given.options:
        # The znodes remain, because the tree may have other limits.
        no_limits = {_FIELDS[option]: -1 for option in given.options}
        limits = parse_track(client.get(limits_path)[0]) | no_limits
        client.set(limits_path, track_text(limits).encode(), ANY_VERSION)
    else:
        names, _ = client.children(quota_path)
        # A znode can be deleted only after its children.
        for name in names:
            client.delete(join_path(quota_path, name), ANY_VERSION)
        # The parents only exist for quotas, so they are deleted unless another quota needs them.
        while quota_path != _ROOT and not client.children(quota_path)[0]:
            client.delete(quota_path, ANY_VERSION)
            quota_path = quota_path.rpartition("/")[0]


SET: Final = Command(
    "-n|-b|-N|-B val path", _set, with_value=tuple("nbNB"), check=_check_one, min_words=1
)
LIST: Final = Command("path", _list, min_words=1)
DELETE: Final = Command(
    "[-n|-b|-N|-B] path", _delete, flags="nbNB", check=_check_at_most_one, min_words=1
)
