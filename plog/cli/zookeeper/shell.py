"""``plog zookeeper-shell``: options, standard input and output of the shell.

The shell runs a command from its arguments, or commands from standard input or a prompt;
session.py executes the commands. As in ZooKeeper's shell, the exit code is that of the last
command. If no connection can be opened, the shell exits with an error within ten seconds, while
ZooKeeper's shell shows its prompt and keeps retrying. SASL is not supported, because kazoo requires
another package for it; the command addauth authenticates with a password.

Source: Kafka 3.9 ZooKeeperMainWithTlsSupportForKafka, ZooKeeper 3.8 ZooKeeperMain.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from plog.cli.options import UsageError, positive, read_properties
from plog.cli.parser import Parser, add_examples
from plog.cli.zookeeper.session import Session

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security

_SESSION_TIMEOUT_MS: Final = 30_000
_TLS_FILE: Final = "-zk-tls-config-file"


def configure(parser: argparse.ArgumentParser) -> None:
    """Read and change znodes in ZooKeeper."""
    parser.add_argument(
        "server",
        metavar="HOST:PORT[,HOST:PORT][/CHROOT]",
        help="servers of the ensemble, and an optional root path (chroot)",
    )
    _add_connection_options(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="command to run (default: read commands from standard input); `help` lists the"
        " commands",
    )
    add_examples(
        parser,
        (
            "print the state of a partition",
            _example("get /brokers/topics/orders/partitions/0/state"),
        ),
        ("list the registered brokers", _example("ls /brokers/ids")),
        ("elect another controller", _example("deleteall /controller")),
        ("limit the number of znodes in a tree", _example("setquota -N 100 /brokers/topics")),
        ("a shell", _example("")),
    )
    parser.set_defaults(run=run)


def _example(command: str) -> str:
    return f"plog zookeeper-shell localhost:2181 {command}".rstrip()


def _add_connection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        _TLS_FILE,
        f"-{_TLS_FILE}",
        dest="tls_file",
        metavar="FILE",
        help="properties file with zookeeper.ssl.* settings for TLS, with PEM stores",
    )
    parser.add_argument(
        "-timeout",
        dest="timeout_ms",
        metavar="MS",
        type=positive,
        default=_SESSION_TIMEOUT_MS,
        help="session timeout in milliseconds (default: %(default)s)",
    )
    parser.add_argument(
        "-r",
        dest="read_only",
        action="store_true",
        help="accept a server that is not part of a quorum",
    )
    parser.add_argument(
        # Scripts for ZooKeeper's shell pass this option; here, every command waits.
        "-waitforconnection",
        action="store_true",
        help="wait for the connection before running a command (always enabled)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command in the arguments, or an interactive shell."""
    _take_late_options(arguments)
    security = _security(arguments.tls_file)
    try:
        from plog.cli.zookeeper import client as zookeeper_client
    except ModuleNotFoundError as error:
        # The Debian packages only suggest kazoo.
        raise UsageError(
            "cannot connect to ZooKeeper: kazoo is not installed; install Debian's python3-kazoo,"
            " or run pip install kazoo"
        ) from error

    session = Session(
        lambda host, on_event: zookeeper_client.connect(
            host,
            on_event,
            security=security,
            # ZooKeeper's option is in milliseconds, kazoo's in seconds.
            session_timeout_s=arguments.timeout_ms / 1000,
            read_only=arguments.read_only,
        ),
        print_line=_print_line,
        note=_note,
    )
    _print_line(f"Connecting to {arguments.server}")
    if not arguments.command:
        _print_line("Welcome to ZooKeeper!")
    try:
        session.connect(arguments.server)
        if arguments.command:
            session.process(arguments.command)
        else:
            _interact(session)
    finally:
        session.close()
    return session.exit_code


def _take_late_options(arguments: argparse.Namespace) -> None:
    """Parse the options that follow the server; the TLS option may also follow the command."""
    # Kafka's tool accepts the TLS option at any position.
    command = arguments.command
    if _TLS_FILE in command:
        at = command.index(_TLS_FILE)
        if at + 1 == len(command):
            raise UsageError(f"{_TLS_FILE} requires a file name")
        arguments.tls_file = command[at + 1]
        command = command[:at] + command[at + 2 :]
    parser = Parser(prog="plog zookeeper-shell", add_help=False)
    _add_connection_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    # Options before the server become defaults, so they keep their values unless they are repeated
    # after the server.
    given = {name: value for name, value in vars(arguments).items() if name != "command"}
    parser.set_defaults(**given)
    parser.parse_args(command, arguments)


def _security(path: str | None) -> Security | None:
    """Return the TLS settings in Kafka's properties file.

    Raises UsageError, ConfigError or OSError.
    """
    if path is None:
        return None
    from plog.zookeeper.tls_settings import security_of

    return security_of(read_properties(path))


def _interact(session: Session) -> None:
    """Read and run lines until the input ends or a command ends the session."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _use_readline(session)
    while not session.is_over:
        try:
            line = input(session.prompt if is_terminal else "")
        # Ctrl-D leaves the cursor behind the prompt.
        except EOFError:
            if is_terminal:
                _print_line("")
            break
        session.execute(line)


def _use_readline(session: Session) -> None:
    """Enable line history, and completion of paths and commands."""
    try:
        import readline
    except ImportError:  # Python was built without readline.
        return

    def complete(text: str, state: int) -> str | None:
        found = list(session.completions(text))
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    # Paths contain slashes and hyphens, at which readline would split words by default.
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")


def _print_line(line: str) -> None:
    # Flushed immediately, because events are printed from another thread, and notes are printed to
    # another stream.
    print(line, flush=True)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
