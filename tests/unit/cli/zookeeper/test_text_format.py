"""plog/cli/zookeeper/text_format.py: command lines, paths, ACLs and statistics."""

from __future__ import annotations

import time

import pytest

from plog.cli.zookeeper.text_format import (
    Acl,
    CommandRefused,
    Stat,
    acl_lines,
    check_path,
    parse_acls,
    parse_options,
    split_words,
    stat_lines,
)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  get   /a ", ["get", "/a"]),
        ("set /a 'it is' \"\"", ["set", "/a", "it is", ""]),
        ("set /a it's", ["set", "/a", "it's"]),
        ('get "/open', ["get", "/open"]),
        (" ", []),
    ],
)
def test_line_is_split_like_zookeepers_shell_does(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_options_are_accepted_anywhere_and_numbers_are_words() -> None:
    given = parse_options(["/a", "-v", "-1", "-5", "-s", "-"], "s", "v")
    assert given.words == ["/a", "-5", "-"]
    assert given.options == {"v": "-1", "s": ""}
    assert given.number("v", 0) == -1
    assert given.number("b", 7) == 7


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-v5"], {"v": "5"}),
        (["-v=5"], {"v": "5"}),
        (["-sv", "5"], {"s": "", "v": "5"}),
        (["-file", "-x"], {"file": "-x"}),
        (["-file", "x", "-v", "-1"], {"file": "x", "v": "-1"}),
    ],
)
def test_option_value_follows_in_the_same_or_the_next_word(
    words: list[str], options: dict[str, str]
) -> None:
    assert parse_options(words, "s", ("v", "file")) == ([], options)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-q"], "Unrecognized option: -q"),
        (["-sq"], "Unrecognized option: -sq"),
        (["/a", "-v"], "Missing argument for option: v"),
        (["-v", "-s", "/a"], "Missing argument for option: v"),
    ],
)
def test_invalid_option_fails_with_zookeepers_message(words: list[str], problem: str) -> None:
    with pytest.raises(CommandRefused, match=f"^{problem}$"):
        parse_options(words, "s", "v")


def test_non_numeric_version_is_an_error() -> None:
    with pytest.raises(CommandRefused, match="-v argument must be an int value"):
        parse_options(["-v", "x"], "", "v").number("v", -1)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c/..d", "/a b/ü"])
def test_valid_path_is_returned(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "Path length must be > 0"),
        ("a", "Path must start with / character"),
        ("/a/", "Path must not end with / character"),
        ("/q//x", 'Invalid path string "/q//x" caused by empty node name specified @3'),
        ("/q/../t", 'Invalid path string "/q/../t" caused by relative paths not allowed @4'),
        ("/q/./t", 'Invalid path string "/q/./t" caused by relative paths not allowed @3'),
        ("/a\tb", 'Invalid path string "/a\tb" caused by invalid character @2'),
        ("/a/\0", 'Invalid path string "/a/\0" caused by null character not allowed @3'),
    ],
)
def test_invalid_path_fails_with_zookeepers_message(path: str, problem: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        check_path(path)
    assert str(refused.value) == problem


def test_acls_are_parsed_and_printed_in_zookeepers_order() -> None:
    acls, problems = parse_acls("world:anyone:rwcda,digest:u:aGk=:rx,none")
    assert acls == [Acl("world", "anyone", 31), Acl("digest", "u:aGk=", 1)]
    assert problems == ["Unknown perm type: x", "none does not have the form scheme:id:perm"]
    assert list(acl_lines(acls)) == ["'world,'anyone", ": cdrwa", "'digest,'u:aGk=", ": r"]


def test_statistics_are_printed_in_java_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    stat = Stat(
        czxid=0x1F,
        mzxid=0x20,
        ctime=1_700_000_000_999,
        mtime=0,
        version=1,
        cversion=2,
        aversion=3,
        ephemeral_owner=-(1 << 63),
        data_length=5,
        num_children=6,
        pzxid=7,
    )
    assert list(stat_lines(stat)) == [
        "cZxid = 0x1f",
        "ctime = Tue Nov 14 22:13:20 UTC 2023",
        "mZxid = 0x20",
        "mtime = Thu Jan 01 00:00:00 UTC 1970",
        "pZxid = 0x7",
        "cversion = 2",
        "dataVersion = 1",
        "aclVersion = 3",
        "ephemeralOwner = 0x8000000000000000",
        "dataLength = 5",
        "numChildren = 6",
    ]
