"""Which room may import which, and what a pure room may not touch: docs/architecture.md, as a test.

No modules import each other in a cycle, not even inside functions or for types alone.

The rooms left of a room are all it may know. Code in a pure room gets its clock, timers, files,
chance and threads through plogd/ports.py, so that the simulator can give it its own; here that
means: no Twisted, no ``time`` or ``random``, no ``os`` call that reaches a file, no thread, no
socket.

Reads the sources and imports nothing, so a broken module cannot hide a wrong import.
"""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BASE = (
    "plog.version",
    "plog.error_base",
    "plog.error_codes",
    "plog.transaction_errors",
    "plog.errors",
    "plog.types",
    "plog.enums",
    "plog.hashing",
    "plog.metadata_versions",
    "plog.release_features",
    "plog.cipher_suites",
    "plog.pem",
    "plog.scram",
)
SETTINGS = ("plog.pem_settings", "plog.properties", "plog.settings", "plog.settings_text")
LIBRARY = (*BASE, *SETTINGS, "plog.wire", "plog.records")
COMMON = (
    "plogd.ports",
    "plogd.files",
    "plogd.file_pool",
    "plogd.descriptor_budget",
    "plogd.config",
    "plogd.topic_config",
    "plogd.metrics",
    "plogd.fair_queue",
    "plogd.concurrency",
    "plogd.notify_all",
    "plogd.reliable_timers",
    "plogd.waiters",
)
SHARED = (
    "plogd.metadata.store",
    "plogd.metadata.cache",
    "plogd.metadata.zk_paths",
    "plogd.security",
    "plogd.quota",
    "plogd.audit",
    "plogd.features",
)
CORE = (*LIBRARY, *COMMON, *SHARED, "plogd.log", "plogd.replica", "plogd.coordinator")
EMBEDDED = (
    "plogd.metadata.embedded",
    "plogd.metadata.image",
    "plogd.metadata.log_replay",
    "plogd.metadata.pending_write",
    "plogd.metadata.record_batch",
    "plogd.metadata.security_image",
)
BELOW_BROKER = (*CORE, *EMBEDDED, "plogd.controller", "plogd.connection_context")
PURE = (*BELOW_BROKER, "plogd.broker", "plogd.apis")
SHELL = (
    "plogd.__main__",
    "plogd.http",
    "plogd.logging",
    "plogd.machine",
    "plogd.metadata.zookeeper",
    "plogd.net",
    "plogd.os_files",
    "plogd.process",
    "plogd.sdnotify",
    "plogd.service",
    "plogd.settings_file",
    "plogd.tap",
    "plogd.tasks",
    "plogd.testing",
    "plogd.tools",
    "twisted.plugins",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One row of the table: `names` may import themselves, `may_import` and `outside` packages."""

    names: tuple[str, ...]
    may_import: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    pure: bool = False


ROOMS = (
    Room(names=BASE, pure=True),
    Room(names=SETTINGS, may_import=BASE, pure=True),
    Room(names=("plog.wire",), may_import=BASE, pure=True),
    # Looks for compiled modules when their package is imported: no port is there yet.
    Room(names=("plog.compiled",)),
    Room(
        names=("plog.records",),
        may_import=(*BASE, "plog.wire", "plog.compiled"),
        outside=("crc32c", "lz4", "snappy", "zstandard"),
        pure=True,
    ),
    Room(names=("plog.client",), may_import=LIBRARY, outside=("pyarrow", "twisted", "zope")),
    Room(names=("plog.openssl",), may_import=BASE, outside=("OpenSSL", "cryptography")),
    Room(
        names=("plog.client.network.twisted_tls",),
        may_import=(*LIBRARY, "plog.client", "plog.openssl"),
        outside=("OpenSSL", "cryptography", "service_identity", "twisted", "zope"),
    ),
    Room(names=("plog.twisted", "plog.aio"), may_import=(*LIBRARY, "plog.client")),
    Room(
        names=("plog.cli",),
        may_import=(*LIBRARY, "plog.client"),
        outside=("argcomplete", "tqdm"),
    ),
    Room(
        names=("plog.cli.zookeeper.client",),
        may_import=(*LIBRARY, "plog.client", "plog.cli"),
        outside=("kazoo",),
    ),
    Room(names=("plog.agent", "plog.spark"), may_import=(*LIBRARY, "plog.client")),
    Room(names=("plog.zookeeper",), may_import=BASE, outside=("kazoo", "twisted")),
    Room(names=("plog.testing",), may_import=("plog", "plogd.testing")),
    Room(names=("plog",), may_import=(*LIBRARY, "plog.client")),
    Room(names=COMMON, may_import=(*BASE, *SETTINGS), pure=True),
    Room(names=SHARED, may_import=(*LIBRARY, *COMMON), pure=True),
    Room(names=("plogd.log",), may_import=(*LIBRARY, *COMMON), pure=True),
    Room(names=("plogd.replica",), may_import=(*LIBRARY, *COMMON, *SHARED, "plogd.log"), pure=True),
    Room(names=("plogd.coordinator",), may_import=CORE, pure=True),
    Room(names=("plogd.controller",), may_import=(*LIBRARY, *COMMON, *SHARED), pure=True),
    Room(names=EMBEDDED, may_import=(*LIBRARY, *COMMON, *SHARED, "plogd.log"), pure=True),
    Room(names=("plogd.connection_context",), pure=True),
    Room(names=("plogd.broker",), may_import=BELOW_BROKER, pure=True),
    Room(names=("plogd.apis",), may_import=(*BELOW_BROKER, "plogd.broker"), pure=True),
    # The framing and ordering of requests live beside the sockets, but the simulator runs them too.
    Room(names=("plogd.net.request_queue",), may_import=PURE, pure=True),
    Room(names=("plogd.metadata", "plogd")),
    Room(
        names=SHELL,
        may_import=("plog", "plogd"),
        outside=("kazoo", "pytest", "tqdm", "twisted", "zope"),
    ),
    Room(
        names=(
            "plogd.net.tls_context",
            "plogd.net.tls_files",
            "plogd.net.tls_port",
            "plogd.net.tls_reload",
        ),
        may_import=("plog", "plogd"),
        outside=("OpenSSL", "cryptography", "twisted", "zope"),
    ),
)

# Rows for an __init__.py alone: what lies below must have a row of its own.
BARE_PACKAGES = {"plog", "plogd", "plogd.metadata"}

# A pure room is given these by a port, or has no use for them.
FORBIDDEN_IN_PURE_ROOMS = {
    "asyncio",
    "concurrent",
    "fcntl",
    "mmap",
    "multiprocessing",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
# What of ``os`` only computes.
HARMLESS_IN_OS = {"fspath", "path", "sep", "strerror"}
CLOCK_CALLS = {"now", "today", "utcnow"}
# The settings are read from their files before there is a broker to give a port to.
READS_FILES = {"plogd.config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A source file: its dotted name, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module


def _modules() -> list[Module]:
    found = []
    for folder, prefix in (("plog", "plog"), ("daemon/plogd", "plogd"), ("twisted", "twisted")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [prefix, *path.relative_to(ROOT / folder).with_suffix("").parts]
            name = ".".join(parts).removesuffix(".__init__")
            found.append(Module(name=name, path=path, tree=ast.parse(path.read_text())))
    return found


MODULES = _modules()
NAMES = {module.name for module in MODULES}
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def _lies_in(name: str, rooms: tuple[str, ...] | set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def _room_of(name: str) -> Room | None:
    """The row with the longest matching name, so that a part of a room can have its own row."""
    rows = [
        (len(prefix), row)
        for row in ROOMS
        for prefix in row.names
        if (name == prefix if prefix in BARE_PACKAGES else _lies_in(name, (prefix,)))
    ]
    return max(rows, key=lambda row: row[0])[1] if rows else None


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                # `from plogd import config` names a module, `from plogd.config import X` a value.
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in NAMES else node.module


def _nodes_run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _nodes_run_at_import(child)


@every_module
def test_a_module_imports_only_what_its_room_may_know(module: Module) -> None:
    room = _room_of(module.name)
    assert room is not None, f"{module.name} lies in no room of the table"
    wrong = []
    for line, name in _imports(module.tree):
        top = name.partition(".")[0]
        if top in ("plog", "plogd"):
            allowed = _lies_in(name, room.names) or _lies_in(name, room.may_import)
        else:
            allowed = top in sys.stdlib_module_names or top in room.outside
        if not allowed:
            wrong.append(f"{module.path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


# -- cycles ----------------------------------------------------------------------------------------


def _import_lines() -> dict[str, dict[str, str]]:
    """For each module, the modules of ours that it imports, and the place of the first import.

    That a module needs the ``__init__`` of its package does not count.
    """
    graph: dict[str, dict[str, str]] = {}
    for module in MODULES:
        lines = graph[module.name] = {}
        for line, name in _imports(module.tree):
            if name in NAMES and name != module.name:
                lines.setdefault(name, f"{module.path.relative_to(ROOT)}:{line} imports {name}")
    return graph


def _cycles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Cycles without a common module, until the graph without their modules has none."""
    rest = {name: set(imported) for name, imported in graph.items()}
    found = []
    while rest:
        leaves = {name for name, imported in rest.items() if not imported & rest.keys()}
        if not leaves:
            loops = (_shortest_loop(name, rest) for name in sorted(rest))
            found.append(min((loop for loop in loops if loop), key=len))
            leaves = set(found[-1])
        for name in leaves:
            del rest[name]
    return found


def _shortest_loop(start: str, graph: Mapping[str, Collection[str]]) -> list[str]:
    """The modules from `start` back to it; empty if no way leads back."""
    came_from: dict[str, str] = {}
    reached = deque([start])
    while reached:
        name = reached.popleft()
        for imported in sorted(graph[name]):
            if imported == start:
                loop = [name]
                while loop[-1] != start:
                    loop.append(came_from[loop[-1]])
                return loop[::-1]
            if imported in graph and imported not in came_from:
                came_from[imported] = name
                reached.append(imported)
    return []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    lines = _import_lines()
    texts = [
        "\n".join(
            [
                " -> ".join([*cycle, cycle[0]]),
                *(f"  {lines[a][b]}" for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)),
            ]
        )
        for cycle in _cycles(lines)
    ]
    if texts:
        pytest.fail("modules that import each other:\n" + "\n".join(texts), pytrace=False)


def test_every_kind_of_import_counts_for_cycles() -> None:
    source = """
from typing import TYPE_CHECKING
import plog.errors
from plogd import broker
if TYPE_CHECKING:
    from plogd.apis.dispatch import Dispatcher
def function():
    from plogd.machine import Machine
"""
    names = {name for _, name in _imports(ast.parse(source)) if name in NAMES}
    assert names == {"plog.errors", "plogd.broker", "plogd.apis.dispatch", "plogd.machine"}


def test_cycles_are_found_in_a_graph_that_has_some() -> None:
    graph = {
        "top": {"a", "d"},
        "a": {"b", "leaf"},
        "b": {"c"},
        "c": {"a", "b"},
        "d": {"e", "a"},
        "e": {"d", "leaf"},
        "leaf": set[str](),
    }
    assert _cycles(graph) == [["b", "c"], ["d", "e"]]
    graph["c"].clear()
    graph["e"].clear()
    assert _cycles(graph) == []


@every_module
def test_a_pure_room_reaches_the_world_only_through_ports(module: Module) -> None:
    room = _room_of(module.name)
    if room is None or not room.pure:
        return
    where = module.path.relative_to(ROOT)
    wrong = [
        f"{where}:{line} imports {name}"
        for line, name in _imports(module.tree)
        if name.partition(".")[0] in FORBIDDEN_IN_PURE_ROOMS
    ]
    if not _lies_in(module.name, READS_FILES):
        wrong += [f"{where}:{line} {what}" for line, what in _world_calls(module.tree)]
    assert wrong == []


def _world_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Uses of ``os``, ``open`` and the wall clock, as (line, what)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "pathlib"):
            yield node.lineno, f"takes names out of {node.module}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            yield node.lineno, "opens a file"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr not in HARMLESS_IN_OS:
                yield node.lineno, f"uses os.{node.attr}"
            if node.value.id in ("datetime", "date") and node.attr in CLOCK_CALLS:
                yield node.lineno, f"asks the machine's clock with {node.value.id}.{node.attr}"


@every_module
def test_no_module_installs_the_reactor_by_being_imported(module: Module) -> None:
    wrong = [
        f"{module.path.relative_to(ROOT)}:{node.lineno}"
        for node in _nodes_run_at_import(module.tree)
        if (isinstance(node, ast.Import) and _names_reactor([x.name for x in node.names], ""))
        or (
            isinstance(node, ast.ImportFrom)
            and _names_reactor([x.name for x in node.names], node.module or "")
        )
    ]
    assert wrong == []


def _names_reactor(names: list[str], package: str) -> bool:
    return any(f"{package}.{name}".strip(".") == "twisted.internet.reactor" for name in names) or (
        package == "twisted.internet.reactor"
    )
