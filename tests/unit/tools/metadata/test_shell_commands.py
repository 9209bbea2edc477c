"""plogd/tools/metadata/shell_commands.py: the commands, run in a small tree."""

from __future__ import annotations

import pytest

from plogd.tools.metadata.shell_commands import COMMANDS, Shell


@pytest.fixture
def shell() -> Shell:
    """Return a shell at the root."""
    topics: dict[str, object] = {"orders": {"id": "abc", "0": "p0"}, "clicks": {}, "a,b": {}}
    return Shell({"image": {"topics": topics, "level": 11}, "local": {"version": "1"}})


def run(shell: Shell, line: str) -> list[str]:
    return list(shell.run(line.split()))


def test_ls_lists_names_in_order(shell: Shell) -> None:
    assert run(shell, "ls") == ["image", "local"]
    assert run(shell, "ls /image/topics") == ["a,b", "clicks", "orders"]
    assert run(shell, "ls image/level") == ["level"]


def test_ls_prints_directory_names_when_several_are_given(shell: Shell) -> None:
    assert run(shell, "ls /image/level /local /image/topics/orders") == [
        "level", "", "local:", "version", "", "orders:", "0", "id",
    ]  # fmt: skip
    assert run(shell, "ls /local /image/topics/clicks /local")[:2] == ["local:", "version"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("/image/topics/{orders,clicks}", ["clicks", "orders"]),
        ("/image/topics/*s", ["clicks", "orders"]),
        ("/image/topics/?,b", ["a,b"]),
        ("/image/topics/or*/i?", ["id"]),
        ("/image/topics/{a,b", []),
        ("/image/level/below", []),
    ],
)
def test_find_matches_patterns(shell: Shell, pattern: str, names: list[str]) -> None:
    assert [found.name for found in shell.find(pattern)] == names


def test_cd_changes_directory(shell: Shell) -> None:
    assert run(shell, "pwd") == ["/"]
    assert run(shell, "cd image/topics") == []
    assert run(shell, "pwd") == ["/image/topics"]
    assert run(shell, "cat orders/id ../level ../../local/./version") == ["abc", "11", "1"]
    assert run(shell, "cd ../../../..") == run(shell, "cd") == []
    assert run(shell, "pwd") == ["/"]


def test_find_and_tree_descend_into_directories(shell: Shell) -> None:
    assert run(shell, "find /image/topics/orders") == [
        "/image/topics/orders",
        "/image/topics/orders/0",
        "/image/topics/orders/id",
    ]
    assert run(shell, "find /")[:2] == ["/", "/image"]
    assert run(shell, "tree /local /image/topics/orders") == [
        "version:", "  1", "0:", "  p0", "id:", "  abc",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ls /x", "ls: /x: no such file or directory."),
        ("cat /x", "cat: /x: No such file or directory."),
        ("cat /image", "cat: /image: Is a directory"),
        ("cat", "too few arguments"),
        ("cd /x", "cd: /x: no such directory."),
        ("cd a b", "unrecognized arguments: 'b'"),
        ("cd /image/level", "cd: /image/level: not a directory."),
        ("find x", "find: x: no such file or directory."),
        ("tree x", "tree: x: No such file or directory."),
        ("ls -l /x", "unrecognized arguments: '-l'"),
        ("pwd x y", "unrecognized arguments: 'x' 'y'"),
        ("man", "too few arguments"),
        ("man rm", "man: unknown command rm. Type help to get a list of commands."),
        ("history x", "history: x is not a number"),
        (
            "rm x",
            "invalid choice: 'rm' (choose from 'cat', 'cd', 'exit', 'find', 'help', 'history',"
            " 'ls', 'man', 'pwd', 'quit', 'tree')",
        ),
    ],
)
def test_invalid_command_prints_one_line(shell: Shell, line: str, message: str) -> None:
    assert run(shell, line) == [message]


def test_shell_has_history_help_and_quit(shell: Shell) -> None:
    run(shell, "ls /local")
    assert run(shell, "history") == ["    0  ls /local", "    1  history"]
    assert list(shell.run(["history", "1"], "history '1'")) == ["    2  history '1'"]
    assert [line.split()[0] for line in run(shell, "help")] == list(COMMANDS)
    assert all(len(line.split()) > 2 for line in run(shell, "help"))
    assert not shell.exited
    run(shell, "quit")
    assert shell.exited


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("cat", "cat targets [targets ...]"),
        ("cd", "cd [target]"),
        ("find", "find [paths [paths ...]]"),
        ("man", "man cmd"),
        ("pwd", "pwd"),
    ],
)
def test_man_prints_usage(shell: Shell, name: str, usage: str) -> None:
    lines = run(shell, f"man {name}")
    assert lines[0] == f"{name}: {COMMANDS[name].summary}"
    assert lines[2] == f"usage: {usage}"
    assert len(lines) == (3 if usage == name else 6)


def test_completions_include_commands_and_paths(shell: Shell) -> None:
    assert list(shell.completions("q", is_command=True)) == ["quit "]
    assert list(shell.completions("im", is_command=False)) == ["image/"]
    assert list(shell.completions("/image/", is_command=False)) == [
        "/image/level ",
        "/image/topics/",
    ]
    assert list(shell.completions("/nowhere/x", is_command=False)) == []
    run(shell, "cd /image/topics")
    assert list(shell.completions("or", is_command=False)) == ["orders/"]


def test_ls_uses_columns_that_fit_terminal(shell: Shell) -> None:
    shell.width = 24
    assert run(shell, "ls /image/topics") == ["a,b  clicks  orders"]
    shell.width = 18
    assert run(shell, "ls /image/topics") == ["a,b     orders", "clicks"]
    shell.width = 3
    assert run(shell, "ls /image/topics") == ["a,b", "clicks", "orders"]
