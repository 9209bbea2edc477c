"""A session of ZooKeeper's shell, with its command history and current connection.

Pure: the caller passes in `connect`, `print_line` and `note`. This module implements the commands
for the session itself; commands.py implements the commands for znodes. Source: ZooKeeper 3.8
ZooKeeperMain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from plog.cli.zookeeper.commands import COMMANDS, run_command
from plog.cli.zookeeper.ports import Console, ZooKeeper
from plog.cli.zookeeper.text_format import (
    CommandRefused,
    NoSuchCommand,
    event_lines,
    join_path,
    split_words,
)
from plog.error_base import PlogError

OnEvent = Callable[[str, str, "str | None"], None]
CLOSED: Final = "CLOSED"
_NOT_CONNECTED: Final = "Not connected"
_RENAMED: Final = {"rmr": "deleteall"}
"""Commands in Kafka's documentation that ZooKeeper 3.8 has renamed."""
_HISTORY_LINES: Final = 11
"""Number of commands that `history` prints, as in ZooKeeper's shell."""
_SHELL_COMMANDS: Final = {
    "close": "",
    "connect": "host:port",
    "exit": "",
    "help": "",
    "history": "",
    "printwatches": "on|off",
    "quit": "",
    "redo": "cmdno",
}


class Session:
    """A shell's current connection, command history and last exit code."""

    def __init__(
        self,
        connect: Callable[[str, OnEvent], ZooKeeper],
        *,
        print_line: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._print_line = print_line
        self._note = note
        self._client: ZooKeeper | None = None
        self._host = ""
        self._history: list[str] = []
        self._prints_events = True
        self.exit_code = 0
        """The exit code of the last command."""
        self.is_over = False

    @property
    def prompt(self) -> str:
        """The prompt: host, connection state and number of the next command."""
        state = CLOSED if self._client is None else self._client.state
        return f"[zk: {self._host}({state}) {len(self._history)}] "

    def connect(self, host: str) -> None:
        """Close the current connection and connect to `host`. Raises PlogError."""
        # As in ZooKeeper's shell, there is only one connection at a time.
        self.close()
        self._host = host
        self._client = self._connect(host, self._on_event)
        # The connection only reports later state changes.
        self._on_event("SyncConnected", "None", None)

    def close(self) -> None:
        """Close the connection if one is open."""
        # Cleared first: if closing fails, the session must not use the connection again.
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def execute(self, line: str) -> None:
        """Add a line to the history, run it, and print its output and errors."""
        words = split_words(line)
        if words:
            # Before the command runs, because `history` prints this line and `redo` replaces it.
            self._history.append(line)
            self.process(words)

    def process(self, words: Sequence[str]) -> None:
        """Run a command, and print its output and errors."""
        self.exit_code = 0
        try:
            for each in self._run(words):
                self._print_line(each)
        except CommandRefused as error:
            self.exit_code = error.exit_code
            self._note(str(error))
        except PlogError as error:
            self.exit_code = 1
            self._note(f"plog: {error}")

    def completions(self, text: str) -> Iterator[str]:
        """Yield the paths or commands that start with `text`."""
        if not text.startswith("/"):
            yield from (f"{name} " for name in all_commands() if name.startswith(text))
            return
        parent, _, prefix = text.rpartition("/")
        if self._client is None:
            return
        try:
            names, _stat = self._client.children(parent or "/")
        # Completion must not print errors into the line that the user types.
        except CommandRefused:
            return
        yield from (join_path(parent, name) for name in sorted(names) if name.startswith(prefix))

    def _run(self, words: Sequence[str]) -> Iterator[str]:
        name = words[0]
        if name in _RENAMED:
            name = _RENAMED[name]
            self._note(f"'{words[0]}' has been deprecated. Please use '{name}' instead.")
            words = [name, *words[1:]]
        match name:
            case "quit" | "exit":
                self.is_over = True
                self._close_and_report()
            case "help":
                yield from usage_lines()
            case "history":
                first = max(len(self._history) - _HISTORY_LINES, 0)
                for number, line in enumerate(self._history[first:], first):
                    yield f"{number} - {line}"
            case "printwatches" if len(words) == 1:
                yield f"printwatches is {'on' if self._prints_events else 'off'}"
            # As in ZooKeeper's shell, any other word turns them off.
            case "printwatches":
                self._prints_events = words[1] == "on"
            case "connect":
                self.connect(words[1] if len(words) > 1 else self._host)
            case "redo":
                yield from self._run(self._redo(words[1:]))
            case "close":
                if not self._close_and_report():
                    yield _NOT_CONNECTED
            # As in ZooKeeper's shell, an unknown command is an error even without a connection.
            case _ if name not in COMMANDS:
                for line in usage_lines():
                    self._note(line)
                # ZooKeeper's shell also repeats the phrase.
                raise NoSuchCommand(f"Command not found: Command not found {name}")
            case _ if self._client is None or self._client.state == CLOSED:
                yield _NOT_CONNECTED
            case _:
                yield from run_command(Console(self._client, self._note), words)

    def _redo(self, arguments: Sequence[str]) -> list[str]:
        """Return the words of an earlier line, which replaces the redo command in the history."""
        if len(arguments) != 1 or not arguments[0].isdecimal():
            raise CommandRefused("redo cmdno")
        number = int(arguments[0])
        if number >= len(self._history) - 1:  # The last line is the redo command itself.
            raise CommandRefused("Command index out of range")
        line = self._history[number]
        words = split_words(line)
        # A redo that failed stays in the history, and could name itself.
        if words[0] == "redo":
            raise CommandRefused("No redoing redos")
        self._history[-1] = line
        return words

    def _close_and_report(self) -> bool:
        """Close the connection and return whether one was open."""
        was_open = self._client is not None and self._client.state != CLOSED
        self.close()
        if was_open:
            self._on_event("Closed", "None", None)
        return was_open

    def _on_event(self, state: str, kind: str, path: str | None) -> None:
        if self._prints_events:
            for line in event_lines(state, kind, path):
                self._print_line(line)


def all_commands() -> dict[str, str]:
    """Return the usage of every command, by name."""
    return dict(
        sorted({**_SHELL_COMMANDS, **{name: each.usage for name, each in COMMANDS.items()}}.items())
    )


def usage_lines() -> Iterator[str]:
    """Yield the lines that `help` prints."""
    yield "plog zookeeper-shell HOST:PORT[/CHROOT] [-zk-tls-config-file FILE] [COMMAND ARGUMENT...]"
    for name, usage in all_commands().items():
        yield f"\t{name} {usage}".rstrip()
