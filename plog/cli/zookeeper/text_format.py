"""Texts that ZooKeeper's shell parses and prints: command lines, paths, ACLs and statistics.

Pure. Source: ZooKeeper 3.8 PathUtils, AclParser, StatPrinter, ZooKeeperMain.MyCommandOptions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from plog.error_base import PlogError

# In the order of ZooKeeper's output, which is not the order of the bits.
_PERMISSIONS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
# As in ZooKeeperMain.ARGS_PATTERN, quotes are only special at the start of a word.
_WORD: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^\"'\s]\S*")
# Commons CLI, which ZooKeeper's shell uses, treats a negative number as a value.
_NUMBER: Final = re.compile(r"-\d*\.?\d+")
_UNSIGNED: Final = (1 << 64) - 1
# The characters that PathUtils rejects, except null, for which there is a separate message.
_BAD_CHARACTERS: Final = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class CommandRefused(PlogError):
    """A command failed; the message is the same as in ZooKeeper's shell."""

    exit_code = 1


class NoSuchNode(CommandRefused):
    """The znode does not exist."""


class NoSuchCommand(CommandRefused):
    """The command does not exist."""

    exit_code = 127  # As in ZooKeeper's shell, and in POSIX shells.


class Stat(NamedTuple):
    """The statistics of a znode; times are in milliseconds."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Acl(NamedTuple):
    """An ACL entry; `permissions` has the bits read 1, write 2, create 4, delete 8 and admin 16."""

    scheme: str
    id: str
    permissions: int


class Given(NamedTuple):
    """A command's words without options, and the options with their values."""

    words: Sequence[str]
    options: Mapping[str, str]

    def number(self, option: str, default: int) -> int:
        """Return the value of an integer option. Raises CommandRefused."""
        text = self.options.get(option)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise CommandRefused(f"-{option} argument must be an int value") from None


def split_words(line: str) -> list[str]:
    """Split a line into words at white space outside quotes.

    >>> split_words("set /a 'two words' {\\"a\\":1}")
    ['set', '/a', 'two words', '{"a":1}']
    """
    words = _WORD.findall(line)
    return [word[1:-1] if word[0] in "\"'" else word for word in words]


def parse_options(words: Sequence[str], flags: str, with_value: Collection[str]) -> Given:
    """Separate a command's options, at any position, from its other words.

    Raises CommandRefused.

    >>> parse_options(["ls", "/a", "-sR"], "sRw", "")
    Given(words=['ls', '/a'], options={'s': '', 'R': ''})
    >>> parse_options(["-sv1", "-file", "x"], "s", ("v", "file"))
    Given(words=[], options={'s': '', 'v': '1', 'file': 'x'})
    """
    plain_words: list[str] = []
    options: dict[str, str] = {}
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if not _is_option(word, flags):
            plain_words.append(word)
            continue
        for name, value in _options_of(word, flags, with_value):
            if value is None:
                # As in Commons CLI, the value cannot look like an option. A negative number is a
                # value.
                letters = {*flags, *(each[0] for each in with_value)}
                if not rest or (_is_option(rest[-1], "") and rest[-1][1] in letters):
                    raise CommandRefused(f"Missing argument for option: {name}")
                value = rest.pop()
            options[name] = value
    return Given(plain_words, options)


def _is_option(word: str, flags: str) -> bool:
    if len(word) < 2 or word[0] != "-":
        return False
    return word[1] in flags or not _NUMBER.fullmatch(word)


def _options_of(
    word: str, flags: str, with_value: Collection[str]
) -> Iterator[tuple[str, str | None]]:
    """Yield the options in one word and their values; for None, the next word is the value."""
    name, equals, value = word[1:].partition("=")
    if name in with_value and (not equals or len(name) == 1):
        yield name, value if equals else None
        return
    for position, letter in enumerate(word[1:], 2):
        if letter in with_value:
            yield letter, word[position:] or None
            return
        if letter not in flags:
            raise CommandRefused(f"Unrecognized option: {word}")
        yield letter, ""


def check_path(path: str) -> str:
    """Return `path` if it is valid. Raises CommandRefused.

    >>> check_path("/brokers/ids")
    '/brokers/ids'
    """
    if not path:
        raise CommandRefused("Path length must be > 0")
    if not path.startswith("/"):
        raise CommandRefused("Path must start with / character")
    if path == "/":
        return path
    if path.endswith("/"):
        raise CommandRefused("Path must not end with / character")
    # The positions in the messages are those of Java, which counts from 0.
    position = -1
    for name in path[1:].split("/"):
        position += 1 + len(name)  # The position of the name's last character.
        if not name:
            _refuse_path(path, f"empty node name specified @{position + 1}")
        if name in (".", ".."):
            _refuse_path(path, f"relative paths not allowed @{position}")
        if "\0" in name:
            _refuse_path(path, f"null character not allowed @{path.index(chr(0))}")
        bad = _BAD_CHARACTERS.search(name)
        if bad is not None:
            _refuse_path(path, f"invalid character @{position - len(name) + 1 + bad.start()}")
    return path


def _refuse_path(path: str, reason: str) -> None:
    raise CommandRefused(f'Invalid path string "{path}" caused by {reason}')


def join_path(parent: str, child: str) -> str:
    """Return the path of a child.

    >>> join_path("/", "a"), join_path("/a", "b")
    ('/a', '/a/b')
    """
    # Only the root ends with a slash.
    return f"{parent.rstrip('/')}/{child}"


def parse_acls(text: str) -> tuple[list[Acl], list[str]]:
    """Parse ``scheme:id:permissions,...`` into ACLs and error messages.

    >>> parse_acls("world:anyone:r,x")
    ([Acl(scheme='world', id='anyone', permissions=1)], ['x does not have the form scheme:id:perm'])
    """
    acls: list[Acl] = []
    problems: list[str] = []
    for part in text.split(","):
        scheme, first, rest = part.partition(":")
        # The id can contain colons, for example an IPv6 address.
        name, second, letters = rest.rpartition(":")
        if not (first and second):
            problems.append(f"{part} does not have the form scheme:id:perm")
            continue
        bits = 0
        for letter in letters:
            if letter not in _PERMISSIONS:
                problems.append(f"Unknown perm type: {letter}")
            bits |= _PERMISSIONS.get(letter, 0)
        acls.append(Acl(scheme, name, bits))
    return acls, problems


def acl_lines(acls: Sequence[Acl]) -> Iterator[str]:
    """Yield two lines per ACL, in the format of ZooKeeper's generated classes."""
    for acl in acls:
        letters = "".join(letter for letter, bit in _PERMISSIONS.items() if acl.permissions & bit)
        # The quotes are unbalanced in ZooKeeper's output, too.
        yield f"'{acl.scheme},'{acl.id}"
        yield f": {letters}"


def stat_lines(stat: Stat) -> Iterator[str]:
    """Yield the lines of a znode's statistics; times are local, in the format of Java's Date."""
    yield f"cZxid = {_hex(stat.czxid)}"
    yield f"ctime = {_date(stat.ctime)}"
    yield f"mZxid = {_hex(stat.mzxid)}"
    yield f"mtime = {_date(stat.mtime)}"
    yield f"pZxid = {_hex(stat.pzxid)}"
    yield f"cversion = {stat.cversion}"
    yield f"dataVersion = {stat.version}"
    yield f"aclVersion = {stat.aversion}"
    yield f"ephemeralOwner = {_hex(stat.ephemeral_owner)}"
    yield f"dataLength = {stat.data_length}"
    yield f"numChildren = {stat.num_children}"


def event_lines(state: str, kind: str, path: str | None) -> list[str]:
    """Return the lines for a watch event or a new connection state.

    >>> event_lines("SyncConnected", "None", None)
    ['', 'WATCHER::', '', 'WatchedEvent state:SyncConnected type:None path:null']
    """
    shown = "null" if path is None else path
    return ["", "WATCHER::", "", f"WatchedEvent state:{state} type:{kind} path:{shown}"]


def list_text(names: Sequence[str]) -> str:
    """Return `names` in the format of a Java list.

    >>> list_text(["a", "b"])
    '[a, b]'
    """
    return f"[{', '.join(names)}]"


def _hex(number: int) -> str:
    """Return a 64-bit number as unsigned hexadecimal, as Java does."""
    return f"0x{number & _UNSIGNED:x}"


def _date(time_ms: int) -> str:
    # Java's Date.toString has no milliseconds.
    return datetime.fromtimestamp(time_ms // 1000).astimezone().strftime("%a %b %d %H:%M:%S %Z %Y")
