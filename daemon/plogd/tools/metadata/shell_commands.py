"""The commands of the metadata shell, which are the same as in Kafka's shell, and their output.

The commands are pure: each receives words and yields lines. Paths work as in a file system, with
``.`` and ``..``, and may contain the patterns ``*``, ``?`` and ``{a,b}``. An invalid path produces
a line of output, as in Kafka's shell.

Source: Kafka 4.3 org.apache.kafka.shell.command, GlobVisitor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_COLUMN_GAP = 2


class Found(NamedTuple):
    """A node and its path from the root."""

    path: tuple[str, ...]
    node: object

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path[-1] if self.path else "/"


class Shell:
    """A session: the tree, the current directory and the command history."""

    def __init__(self, root: dict[str, object]) -> None:
        self._root = root
        self._directory: tuple[str, ...] = ()
        self._history: list[str] = []
        self.width: int | None = None
        """Width of the terminal in characters; if it is None, each name has its own line."""
        self.exited = False

    def run(self, words: Sequence[str], line: str = "") -> Iterator[str]:
        """Run a command and yield its output; `line` is its entry in the history."""
        name, *arguments = words
        # Invalid commands are recorded, too, because users correct them from the history.
        self._history.append(line or " ".join(words))
        command = COMMANDS.get(name)
        if command is None:
            names = ", ".join(f"'{each}'" for each in COMMANDS)
            yield f"invalid choice: '{name}' (choose from {names})"
            return
        problem = command.problem(arguments)
        if problem:
            yield problem
        else:
            yield from command.run(self, arguments)

    def completions(self, text: str, *, is_command: bool) -> Iterator[str]:
        """Yield the completions of a partial word."""
        if is_command:
            yield from (f"{name} " for name in COMMANDS if name.startswith(text))
            return
        parent, slash, beginning = text.rpartition("/")
        # If the path does not exist, the last node is used. It is not a directory, so it does not
        # have completions.
        [directory, *_] = [*self.find(parent + slash or "."), Found((), None)]
        if isinstance(directory.node, dict):
            for name in sorted(directory.node):
                if name.startswith(beginning):
                    # The completed text continues with the next name of the path or with the next
                    # argument.
                    end = "/" if isinstance(directory.node[name], dict) else " "
                    yield f"{parent}{slash}{name}{end}"

    def find(self, pattern: str) -> list[Found]:
        """Return all nodes that match a path, which may be a pattern."""
        found = [Found((), self._root)]
        for part in self._parts(pattern):
            found = [
                Found((*each.path, name), child)
                for each in found
                if isinstance(each.node, dict)
                for name, child in _matching(each.node, part)
            ]
        return found

    def _parts(self, path: str) -> list[str]:
        """Return the names of the absolute path, with ``.`` and ``..`` resolved."""
        parts = [] if path.startswith("/") else list(self._directory)
        for part in path.split("/"):
            if part == "..":
                # A slice, because the parent of the root is the root itself.
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return parts

    # -- commands ------------------------------------------------------------------------------

    def cat(self, targets: Sequence[str]) -> Iterator[str]:
        """Show the contents of files."""
        for target in targets:
            found = self.find(target)
            if not found:
                # The messages are Kafka's, whose spelling differs between commands.
                yield f"cat: {target}: No such file or directory."
            for each in found:
                if isinstance(each.node, dict):
                    yield f"cat: {target}: Is a directory"
                else:
                    yield str(each.node)

    def cd(self, targets: Sequence[str]) -> Iterator[str]:
        """Change the current directory."""
        target = targets[0] if targets else "/"
        found = self.find(target)
        if not found:
            yield f"cd: {target}: no such directory."
        elif not isinstance(found[0].node, dict):
            yield f"cd: {target}: not a directory."
        else:
            self._directory = found[0].path

    def exit(self, _: Sequence[str]) -> Iterator[str]:
        """Leave the shell."""
        self.exited = True
        yield from ()  # Makes this a generator, like the other commands.

    def find_all(self, targets: Sequence[str]) -> Iterator[str]:
        """List everything below directories."""
        for target in targets or ["."]:
            found = self.find(target)
            if not found:
                yield f"find: {target}: no such file or directory."
            for each in found:
                yield from _walk(target, each.node)

    def help(self, _: Sequence[str]) -> Iterator[str]:
        """List the commands."""
        width = max(map(len, COMMANDS))
        for name, command in COMMANDS.items():
            yield f"{name.ljust(width)}  {command.summary}"

    def history(self, count: Sequence[str]) -> Iterator[str]:
        """Show the commands entered before."""
        if count and not count[0].isdecimal():
            yield f"history: {count[0]} is not a number"
            return
        first = max(len(self._history) - int(count[0]), 0) if count else 0
        for number, line in enumerate(self._history[first:], first):
            yield f"{number:5d}  {line}"

    def ls(self, targets: Sequence[str]) -> Iterator[str]:
        """List directories."""
        names: list[str] = []
        directories: list[Found] = []
        for target in targets or ["."]:
            found = self.find(target)
            if not found:
                yield f"ls: {target}: no such file or directory."
            directories += [each for each in found if isinstance(each.node, dict)]
            names += [each.name for each in found if not isinstance(each.node, dict)]
        yield from in_columns(names, self.width)
        # As in ls(1), a single directory needs no heading.
        needs_head = bool(names) or len(directories) > 1
        is_first = not names
        for each in directories:
            assert isinstance(each.node, dict)
            if needs_head and each.node:
                if not is_first:
                    yield ""
                yield f"{each.name}:"
                is_first = False
            yield from in_columns(sorted(each.node), self.width)

    def man(self, names: Sequence[str]) -> Iterator[str]:
        """Show the usage of a command."""
        # `Command.problem` has checked the number of arguments.
        [name] = names
        command = COMMANDS.get(name)
        if command is None:
            yield f"man: unknown command {name}. Type help to get a list of commands."
            return
        yield f"{name}: {command.summary}"
        yield ""
        yield f"usage: {name} {command.usage}".rstrip()
        if command.argument:
            yield ""
            yield "positional arguments:"
            yield f"  {command.argument:<23}{command.about_argument}"

    def pwd(self, _: Sequence[str]) -> Iterator[str]:
        """Show the current directory."""
        yield "/" + "/".join(self._directory)

    def tree(self, targets: Sequence[str]) -> Iterator[str]:
        """Show everything below directories, with contents."""
        for target in targets:
            found = self.find(target)
            if not found:
                yield f"tree: {target}: No such file or directory."
            for each in found:
                yield from _indented(each.node, "")


class Command(NamedTuple):
    """One command; `takes` is the number of arguments in argparse's notation."""

    run: Callable[[Shell, Sequence[str]], Iterator[str]]
    takes: str = ""
    argument: str = ""
    about_argument: str = ""

    @property
    def summary(self) -> str:
        """One line that describes the command."""
        return (self.run.__doc__ or "").strip()

    @property
    def usage(self) -> str:
        """The arguments, as shown after the command's name."""
        name = self.argument
        forms = {"": "", "1": name, "?": f"[{name}]", "*": f"[{name} [{name} ...]]"}
        return forms.get(self.takes, f"{name} [{name} ...]")

    def problem(self, arguments: Sequence[str]) -> str:
        """Return the error for these arguments, in the words of Kafka's parser, or ``""``."""
        # A single hyphen is a name and not an option.
        options = [each for each in arguments if len(each) > 1 and each.startswith("-")]
        most = {"": 0, "1": 1, "?": 1}.get(self.takes, len(arguments))
        unknown = options or arguments[most:]
        if unknown:
            return f"unrecognized arguments: {' '.join(repr(each) for each in unknown)}"
        if not arguments and self.takes in ("1", "+"):
            return "too few arguments"
        return ""


COMMANDS: Final[Mapping[str, Command]] = {
    "cat": Command(Shell.cat, "+", "targets", "Files or patterns."),
    "cd": Command(Shell.cd, "?", "target", "The directory (default: the root)."),
    "exit": Command(Shell.exit),
    "find": Command(Shell.find_all, "*", "paths", "Start directories (default: the current one)."),
    "help": Command(Shell.help),
    "history": Command(Shell.history, "?", "numEntriesToShow", "Number of latest lines to show."),
    "ls": Command(
        Shell.ls, "*", "targets", "Directories or files (default: the current directory)."
    ),
    "man": Command(Shell.man, "1", "cmd", "The command."),
    "pwd": Command(Shell.pwd),
    "quit": Command(Shell.exit),  # Kafka's shell accepts both names.
    "tree": Command(Shell.tree, "+", "targets", "Directories, files or patterns."),
}


def _matching(node: dict[str, object], part: str) -> Iterator[tuple[str, object]]:
    # Most names are plain, and a topic can have thousands of siblings.
    if not re.search(r"[*?{]", part):
        if part in node:
            yield part, node[part]
        return
    pattern = glob_pattern(part)
    for name in sorted(node):
        if pattern.fullmatch(name):
            yield name, node[name]


def glob_pattern(part: str) -> re.Pattern[str]:
    """Return a path component's pattern as a regular expression.

    >>> bool(glob_pattern("{a,b}*").fullmatch("bcd")), bool(glob_pattern("a?").fullmatch("a"))
    (True, False)
    """
    signs = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|"}
    inside = part.count("{") == part.count("}") > 0
    # Without a matching brace, a brace and a comma are ordinary characters.
    if not inside:
        signs = {sign: signs[sign] for sign in "*?"}
    return re.compile("".join(signs.get(character) or re.escape(character) for character in part))


def _walk(path: str, node: object) -> Iterator[str]:
    yield path
    if isinstance(node, dict):
        # A dict keeps the order of the records, which users cannot know.
        for name in sorted(node):
            yield from _walk(f"{path.rstrip('/')}/{name}", node[name])


def _indented(node: object, indent: str) -> Iterator[str]:
    if not isinstance(node, dict):
        yield f"{indent}{node}"
        return
    for name in sorted(node):
        yield f"{indent}{name}:"
        yield from _indented(node[name], indent + "  ")


def in_columns(names: Sequence[str], width: int | None) -> Iterator[str]:
    """Yield lines that contain the names in as many columns as fit, ordered by column.

    >>> list(in_columns(["a", "bb", "c"], 8)), list(in_columns(["a", "b"], None))
    (['a   c', 'bb'], ['a', 'b'])
    """
    if not names:
        return
    # The number of columns that fit cannot be computed, because each column has its own width.
    for count in range(len(names) if width else 1, 0, -1):
        lines = -(-len(names) // count)
        columns = [names[start : start + lines] for start in range(0, len(names), lines)]
        widths = [max(map(len, column)) + _COLUMN_GAP for column in columns]
        if count == 1 or (width and sum(widths) <= width):
            break
    for line in range(lines):
        row = [
            column[line].ljust(size)
            for column, size in zip(columns, widths, strict=True)
            if line < len(column)
        ]
        # Names in the last column would otherwise end in spaces.
        yield "".join(row).rstrip()
