"""The public surface of plog as lines of text: ``python -m tests.public_surface``.

Lists what users may rely on: public imports with their methods and parameters, commands and their
flags, settings with types and defaults, metrics, served API versions, error codes. Texts are left
out. tests/public_surface.txt holds the printed lines, so that a change of the surface is seen in
the change that makes it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import urllib.request
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from plog import error_codes
from plog.cli.commands import COMMANDS
from plog.cli.docs import parsers_below
from plog.cli.parser import tool_parser
from plog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from plog.settings import settings_of
from plogd.apis.api_table import CONTROL_HANDLERS, HANDLERS
from plogd.config.broker_config import BrokerConfig
from plogd.tap import Options
from plogd.testing.broker_thread import BrokerThread
from plogd.topic_config import TopicConfig
from tests.bench.peers import free_ports

GOLDEN = Path(__file__).with_suffix(".txt")
MODULES = (
    "plog",
    "plog.aio",
    "plog.audit",
    "plog.twisted",
    "plog.testing",
    "plog.client.settings",
    "plog.client.simple",
    "plogd.testing",
)
_TABLES = {
    "admin": AdminSettings,
    "broker": BrokerConfig,
    "consumer": ConsumerSettings,
    "producer": ProducerSettings,
    "topic": TopicConfig,
}


def lines() -> Iterator[str]:
    """Every line, in a stable order."""
    for module in MODULES:
        yield from _module_lines(module)
    yield from _command_lines()
    yield from _setting_lines()
    yield from sorted(f"metric {name}" for name in _metric_names())
    for row in sorted((*HANDLERS, *CONTROL_HANDLERS), key=lambda row: row.api_key):
        yield f"api {int(row.api_key)} {row.name} {row.first_version}-{row.last_version}"
    for code in error_codes.ErrorCode:
        yield f"error {code.value} {code.name}"


def _module_lines(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    if public is None:
        public = [each for each in dir(module) if _is_defined_in(module, each)]
    yield f"module {name}"
    for each in sorted(public):
        yield from _object_lines(f"{name}.{each}", getattr(module, each))


def _is_defined_in(module: object, name: str) -> bool:
    own = getattr(getattr(module, name), "__module__", None)
    return not name.startswith("_") and own == getattr(module, "__name__", "")


def _object_lines(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}"
        if not issubclass(value, Exception | Enum):
            yield from _class_lines(name, value)
    elif callable(value):
        yield f"function {name}{_signature(value)}"
    else:
        yield f"value {name}"


def _class_lines(name: str, value: type) -> Iterator[str]:
    yield f"{name}{_signature(value)}"
    for each in sorted(dir(value)):
        if each.startswith("_"):
            continue
        member = inspect.getattr_static(value, each)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        yield f"{name}.{each}{_signature(member) if inspect.isfunction(member) else ''}"


def _signature(function: object) -> str:
    """The parameters' names, and which of them are optional."""
    assert callable(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    texts = []
    for parameter in parameters:
        optional = "" if parameter.default is inspect.Parameter.empty else "="
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        only = "keyword " if parameter.kind.name == "KEYWORD_ONLY" else ""
        texts.append(f"{only}{stars}{parameter.name}{optional}")
    return f"({', '.join(texts)})"


def _command_lines() -> Iterator[str]:
    for row in COMMANDS:
        for short in row.short_names:
            yield f"command {short} = {row.name}"
        for parser in parsers_below(tool_parser(row.name, row.load())):
            yield f"command {parser.prog}"
            for action in parser._actions:
                if not isinstance(action, argparse._SubParsersAction):
                    names = " ".join(action.option_strings) or action.dest
                    yield f"flag {parser.prog}: {names}"
    yield "command plog-broker"
    for long_name in sorted(Options().longOpt):
        yield f"flag plog-broker: --{long_name.rstrip('=')}"


def _setting_lines() -> Iterator[str]:
    for kind, table in _TABLES.items():
        for one in settings_of(table).values():
            yield f"setting {kind} {one.name}: {one.type.name} = {one.default!r} ({one.update})"


def _metric_names() -> set[str]:
    """Families that a new broker exposes, whether they have samples yet or not."""
    port = free_ports(1)
    with (
        TemporaryDirectory() as directory,
        BrokerThread(Path(directory), {"plog.http.port": str(port)}),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page,
    ):
        exposed = page.read().decode().splitlines()
    return {line.split()[2] for line in exposed if line.startswith("# TYPE ")}


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines()))
