"""`JobAction`: the arguments of ``plog spark``, which are a job and its arguments or a subcommand.

A job is a file or one of plog's own jobs, and everything after its name belongs to it, also what
looks like an option. The action is that of subcommands, except that an unknown name is not an
error, so that help, docs and completion list the subcommands as they do elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class _AnyName(dict[str, Any]):
    """The parsers of the subcommands; argparse checks each given name with ``in``."""

    def __contains__(self, _: object) -> bool:
        return True


# The class is generic only for type checkers.
class JobAction(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Runs the parser of a subcommand, or sets `file` and `arguments` in the namespace.

    For one of plog's own jobs, `file` is its name, and `job` its parser.
    """

    def __init__(self, option_strings: Sequence[str], prog: str, **options: Any) -> None:
        super().__init__(option_strings, prog, **options)
        self._subcommands = _AnyName()
        self._jobs: dict[str, argparse.ArgumentParser] = {}
        self.choices = self._subcommands

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        """Add a subcommand."""
        made: argparse.ArgumentParser = super().add_parser(name, **options)
        self._subcommands[name] = made
        return made

    def add_job(
        self, name: str, parser_class: type[argparse.ArgumentParser], **options: Any
    ) -> argparse.ArgumentParser:
        """Add one of plog's own jobs, whose parser may differ from that of subcommands."""
        own_class, self._parser_class = self._parser_class, parser_class
        try:
            made = self.add_parser(name, **options)
        finally:
            self._parser_class = own_class
        self._jobs[name] = made
        return made

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert not isinstance(values, str)  # It is a list, because the action has many values.
        given = list(values or ())
        name, arguments = given[0], given[1:]
        if name in self._jobs:
            namespace.file, namespace.arguments, namespace.job = name, arguments, self._jobs[name]
        elif name in self._subcommands.keys():  # noqa: SIM118 - `in` without it is always true
            super().__call__(parser, namespace, values, option_string)
        else:
            namespace.file, namespace.arguments = name, arguments
