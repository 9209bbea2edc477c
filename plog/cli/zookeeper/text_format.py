"""What ZooKeeper's shell reads and prints: paths, ACLs, the words of a line, a znode's statistics.

Pure. Source: ZooKeeper 3.8 PathUtils, AclParser, StatPrinter, ZooKeeperMain.MyCommandOptions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from plog.error_base import PlogError

# As ZooKeeper prints them, which is not the order of their bits.
_PERMISSIONS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
_WORD: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^\"'\s]\S*")
_NUMBER: Final = re.compile(r"-\d*\.?\d+")
_UNSIGNED: Final = (1 << 64) - 1
_BAD_CHARACTERS: Final = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class CommandRefused(PlogError):
    """A command did not work; the text is ZooKeeper's."""

    exit_code = 1


class NoSuchNode(CommandRefused):
    """There is no znode of that path."""


class NoSuchCommand(CommandRefused):
    """A word that is no command."""

    exit_code = 127


class Stat(NamedTuple):
    """What ZooKeeper knows of a znode besides its data; times in milliseconds."""

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
    """Who may do what: `permissions` are the bits read 1, write 2, create 4, delete 8, admin 16."""

    scheme: str
    id: str
    permissions: int


class Given(NamedTuple):
    """A command's words without its options, and the options with their values."""

    words: Sequence[str]
    options: Mapping[str, str]

    def number(self, option: str, default: int) -> int:
        """An option's whole number. Raises CommandRefused."""
        text = self.options.get(option)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise CommandRefused(f"-{option} argument must be an int value") from None


def split_words(line: str) -> list[str]:
    """The words of a line; quotes hold white space together.

    >>> split_words("set /a 'two words' {\\"a\\":1}")
    ['set', '/a', 'two words', '{"a":1}']
    """
    words = _WORD.findall(line)
    return [word[1:-1] if word[0] in "\"'" else word for word in words]


def parse_options(words: Sequence[str], flags: str, with_value: Collection[str]) -> Given:
    """Take the options out of a command's words, wherever they stand.

    Raises CommandRefused.

    >>> parse_options(["ls", "/a", "-sR"], "sRw", "")
    Given(words=['ls', '/a'], options={'s': '', 'R': ''})
    >>> parse_options(["-sv1", "-file", "x"], "s", ("v", "file"))
    Given(words=[], options={'s': '', 'v': '1', 'file': 'x'})
    """
    plain: list[str] = []
    options: dict[str, str] = {}
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if not _is_option(word, flags):
            plain.append(word)
            continue
        for name, value in _options_of(word, flags, with_value):
            if value is None:
                # What begins as an option does is one; but a number below zero is a value.
                letters = {*flags, *(each[0] for each in with_value)}
                if not rest or (_is_option(rest[-1], "") and rest[-1][1] in letters):
                    raise CommandRefused(f"Missing argument for option: {name}")
                value = rest.pop()
            options[name] = value
    return Given(plain, options)


def _is_option(word: str, flags: str) -> bool:
    if len(word) < 2 or word[0] != "-":
        return False
    return word[1] in flags or not _NUMBER.fullmatch(word)


def _options_of(
    word: str, flags: str, with_value: Collection[str]
) -> Iterator[tuple[str, str | None]]:
    """The options in one word, the last one with its value if that follows in the same word."""
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
    """The path, if it may be one. Raises CommandRefused.

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
    position = -1
    for name in path[1:].split("/"):
        position += 1 + len(name)  # That of its last character.
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
    """The path of a child.

    >>> join_path("/", "a"), join_path("/a", "b")
    ('/a', '/a/b')
    """
    return f"{parent.rstrip('/')}/{child}"


def parse_acls(text: str) -> tuple[list[Acl], list[str]]:
    """The ACLs of ``scheme:id:permissions,...``, and what is wrong with the others.

    >>> parse_acls("world:anyone:r,x")
    ([Acl(scheme='world', id='anyone', permissions=1)], ['x does not have the form scheme:id:perm'])
    """
    acls: list[Acl] = []
    problems: list[str] = []
    for part in text.split(","):
        scheme, first, rest = part.partition(":")
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
    """Two lines for each, as ZooKeeper's generated classes print them."""
    for acl in acls:
        letters = "".join(letter for letter, bit in _PERMISSIONS.items() if acl.permissions & bit)
        yield f"'{acl.scheme},'{acl.id}"
        yield f": {letters}"


def stat_lines(stat: Stat) -> Iterator[str]:
    """A znode's statistics; times are local ones, as Java's Date shows them."""
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
    """What is told of a watch that fired, or of the connection.

    >>> event_lines("SyncConnected", "None", None)
    ['', 'WATCHER::', '', 'WatchedEvent state:SyncConnected type:None path:null']
    """
    shown = "null" if path is None else path
    return ["", "WATCHER::", "", f"WatchedEvent state:{state} type:{kind} path:{shown}"]


def list_text(names: Sequence[str]) -> str:
    """Names as Java prints a list.

    >>> list_text(["a", "b"])
    '[a, b]'
    """
    return f"[{', '.join(names)}]"


def _hex(number: int) -> str:
    """A 64-bit number, which Java shows without a sign."""
    return f"0x{number & _UNSIGNED:x}"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000).astimezone().strftime("%a %b %d %H:%M:%S %Z %Y")
