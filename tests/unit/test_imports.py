"""The import rules of docs/architecture.md: which packages each package may import.

Modules never import each other in a cycle, not even inside functions or for types alone.

A package may import only those that the table lists. Code in a pure package gets its clock, timers,
files, random numbers and threads through plogd/ports.py, so that the simulator can replace them: it
uses no Twisted, no ``time`` or ``random``, no ``os`` call that accesses a file, no thread and no
socket.

The test reads the sources and imports nothing, so a broken module cannot hide a wrong import.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.import_cycles import cycles_of

ROOT = Path(__file__).parents[2]

BASE = (
    "plog.version",
    "plog.error_base",
    "plog.error_codes",
    "plog.errors",
    "plog.types",
    "plog.enums",
    "plog.hashing",
    "plog.metadata_versions",
    "plog.release_features",
    "plog.cipher_suites",
    "plog.pem",
    "plog.scram",
    "plog.zookeeper.operations",
)
SETTINGS = (
    "plog.pem_settings",
    "plog.properties",
    "plog.settings",
    "plog.settings_text",
    "plog.zookeeper_settings",
)
LIBRARY = (*BASE, *SETTINGS, "plog.wire", "plog.records", "plog.audit", "plog.search")
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
    "plogd.work",
)
SHARED = (
    "plogd.metadata.store",
    "plogd.metadata.cache",
    "plogd.metadata.cluster_metadata",
    "plogd.security",
    "plogd.quota",
    "plogd.audit",
    "plogd.features",
    "plogd.peers",
    "plogd.advertised_addresses",
)
CORE = (*LIBRARY, *COMMON, *SHARED, "plogd.log", "plogd.replica", "plogd.coordinator")
EMBEDDED = (
    "plogd.metadata.embedded_metadata",
    "plogd.metadata.embedded_store",
    "plogd.metadata.image",
    "plogd.metadata.image_loader",
    "plogd.metadata.image_records",
    "plogd.metadata.log_replay",
    "plogd.metadata.pending_write",
    "plogd.metadata.quorum",
    "plogd.metadata.record_batch",
    "plogd.metadata.security_image",
    "plogd.metadata.snapshot_generator",
    "plogd.metadata.snapshot_name",
    "plogd.metadata.snapshot_reader",
    "plogd.metadata.snapshot_writer",
)
ZOOKEEPER = ("plogd.metadata.zookeeper",)
BELOW_BROKER = (*CORE, *EMBEDDED, *ZOOKEEPER, "plogd.controller", "plogd.connection_context")
PURE = (*BELOW_BROKER, "plogd.broker", "plogd.cluster_broker", "plogd.apis")
SHELL = (
    "plogd.__main__",
    "plogd.child_process",
    "plogd.http",
    "plogd.journal",
    "plogd.logging",
    "plogd.machine",
    "plogd.net",
    "plogd.node_id",
    "plogd.os_files",
    "plogd.process",
    "plogd.sdnotify",
    "plogd.service",
    "plogd.settings_file",
    "plogd.start_errors",
    "plogd.status_text",
    "plogd.supervision",
    "plogd.system_clock",
    "plogd.system_random",
    "plogd.tap",
    "plogd.tasks",
    "plogd.testing",
    "plogd.tools",
    "twisted.plugins",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: `names` may import each other, `may_import` and `outside` packages."""

    names: tuple[str, ...]
    may_import: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    pure: bool = False


ROWS = (
    Row(names=BASE, pure=True),
    Row(names=SETTINGS, may_import=BASE, pure=True),
    Row(names=("plog.wire",), may_import=(*BASE, "plog.compiled"), pure=True),
    # Searches for compiled modules when its package is imported, before there is any port.
    Row(names=("plog.compiled",)),
    Row(
        names=("plog.records",),
        may_import=(*BASE, "plog.wire", "plog.compiled"),
        outside=("crc32c", "lz4", "snappy", "zstandard"),
        pure=True,
    ),
    Row(names=("plog.audit", "plog.balance"), may_import=BASE, pure=True),
    Row(names=("plog.search",), may_import=BASE),  # It reads and writes the files of indexes.
    Row(names=("plog.client",), may_import=LIBRARY, outside=("pyarrow", "twisted", "zope")),
    Row(
        names=("plog.client.faces.zookeeper_connection",),
        may_import=(*LIBRARY, "plog.client", "plog.zookeeper"),
    ),
    Row(names=("plog.openssl",), may_import=BASE, outside=("OpenSSL", "cryptography")),
    Row(
        names=("plog.client.network.twisted_tls",),
        may_import=(*LIBRARY, "plog.client", "plog.openssl"),
        outside=("OpenSSL", "cryptography", "service_identity", "twisted", "zope"),
    ),
    Row(names=("plog.twisted", "plog.aio"), may_import=(*LIBRARY, "plog.client")),
    Row(
        names=("plog.cli",),
        may_import=(*LIBRARY, "plog.balance", "plog.client"),
        outside=("argcomplete", "tqdm"),
    ),
    Row(
        names=("plog.cli.zookeeper.client", "plog.cli.zookeeper.shell"),
        may_import=(*LIBRARY, "plog.client", "plog.cli", "plog.zookeeper"),
        outside=("kazoo",),
    ),
    # The command lines of Spark's jobs. Nothing here imports pyspark before a job runs.
    Row(
        names=("plog.cli.spark", "plog.cli.sql"),
        may_import=(*LIBRARY, "plog.client", "plog.cli", "plog.spark"),
    ),
    Row(
        names=("plog.cli.spark.job_process",),
        may_import=(*LIBRARY, "plog.client", "plog.cli", "plog.spark"),
        outside=("pyspark",),
    ),
    Row(names=("plog.agent",), may_import=(*LIBRARY, "plog.client")),
    Row(
        names=("plog.spark",),
        may_import=(*LIBRARY, "plog.client"),
        outside=("fastavro", "pyarrow"),
    ),
    # The rest of the package is used and tested without pyspark.
    Row(
        names=(
            "plog.spark.jobs.audit.job",
            "plog.spark.jobs.backfill.job",
            "plog.spark.jobs.event_columns",
            "plog.spark.jobs.folder_owner",
            "plog.spark.jobs.job_source",
            "plog.spark.jobs.realtime.job",
            "plog.spark.jobs.recommend.item_counts",
            "plog.spark.jobs.recommend.job",
            "plog.spark.jobs.recommend.similar_items",
            "plog.spark.jobs.recommend.similar_writer",
            "plog.spark.jobs.search_index.job",
            "plog.spark.jobs.sessions.job",
            "plog.spark.jobs.sql.job",
            "plog.spark.jobs.sql.result_columns",
            "plog.spark.jobs.sql.topic_views",
            "plog.spark.jobs.warehouse.batch_writer",
            "plog.spark.jobs.warehouse.job",
            "plog.spark.jobs.warehouse.table_rows",
            "plog.spark.jobs.window_query",
            "plog.spark.reader.batch_reader",
            "plog.spark.values.dead_letter_rows",
            "plog.spark.values.decoded_values",
            "plog.spark.sink.deduplicating_writer",
            "plog.spark.sink.record_writers",
            "plog.spark.source",
            "plog.spark.reader.stream_reader",
        ),
        may_import=(*LIBRARY, "plog.client", "plog.spark"),
        outside=("pyarrow", "pyspark"),
    ),
    Row(names=("pyspark_plog",), may_import=("plog.spark",)),
    Row(
        names=("plog.zookeeper",),
        may_import=(*LIBRARY, "plog.client"),
        outside=("kazoo", "twisted"),
    ),
    Row(names=("plog.testing",), may_import=("plog", "plogd.testing")),
    Row(names=("plog",), may_import=(*LIBRARY, "plog.client")),
    Row(names=COMMON, may_import=(*BASE, *SETTINGS), pure=True),
    Row(names=SHARED, may_import=(*LIBRARY, *COMMON), pure=True),
    Row(names=("plogd.log",), may_import=(*LIBRARY, *COMMON), pure=True),
    Row(names=("plogd.replica",), may_import=(*LIBRARY, *COMMON, *SHARED, "plogd.log"), pure=True),
    Row(names=("plogd.coordinator",), may_import=CORE, pure=True),
    Row(names=("plogd.controller",), may_import=(*LIBRARY, *COMMON, *SHARED), pure=True),
    Row(names=EMBEDDED, may_import=(*LIBRARY, *COMMON, *SHARED, "plogd.log"), pure=True),
    Row(names=ZOOKEEPER, may_import=(*LIBRARY, *COMMON, *SHARED), pure=True),
    Row(names=("plogd.connection_context",), pure=True),
    Row(names=("plogd.broker",), may_import=BELOW_BROKER, pure=True),
    Row(names=("plogd.cluster_broker",), may_import=(*BELOW_BROKER, "plogd.broker"), pure=True),
    Row(names=("plogd.apis",), may_import=(*BELOW_BROKER, "plogd.broker"), pure=True),
    # Framing and ordering of requests belong to the network code, but the simulator runs them, too.
    Row(names=("plogd.net.request_queue",), may_import=PURE, pure=True),
    Row(names=("plogd.metadata", "plogd")),
    Row(
        names=SHELL,
        may_import=("plog", "plogd"),
        outside=("kazoo", "pytest", "tqdm", "twisted", "zope"),
    ),
    Row(
        names=(
            "plogd.net.tls.tls_context",
            "plogd.net.tls.tls_files",
            "plogd.net.tls.tls_port",
            "plogd.net.tls.tls_reload",
        ),
        may_import=("plog", "plogd"),
        outside=("OpenSSL", "cryptography", "twisted", "zope"),
    ),
)

# Rows for an __init__.py alone: the modules below it need a row of their own.
BARE_PACKAGES = {"plog", "plogd", "plogd.metadata"}

# A pure package gets these through a port, or does not need them.
FORBIDDEN_IN_PURE_PACKAGES = {
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
# The functions of ``os`` that only compute.
HARMLESS_IN_OS = {"fspath", "path", "sep", "strerror"}
CLOCK_CALLS = {"now", "today", "utcnow"}
# Settings are read from files before a broker and its ports exist.
READS_FILES = {"plogd.config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A source file: its dotted name and its syntax tree."""

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
    path = ROOT / "pyspark_plog.py"
    found.append(Module(name=path.stem, path=path, tree=ast.parse(path.read_text())))
    return found


MODULES = _modules()
NAMES = {module.name for module in MODULES}
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def _lies_in(name: str, packages: tuple[str, ...] | set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _row_of(name: str) -> Row | None:
    """Return the row with the longest matching name: a subpackage may have its own row."""
    rows = [
        (len(prefix), row)
        for row in ROWS
        for prefix in row.names
        if (name == prefix if prefix in BARE_PACKAGES else _lies_in(name, (prefix,)))
    ]
    return max(rows, key=lambda row: row[0])[1] if rows else None


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, wherever it is in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                # `from plogd import config` imports a module, `from plogd.config import X` a value.
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in NAMES else node.module


def _nodes_run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _nodes_run_at_import(child)


@every_module
def test_module_imports_only_allowed_packages(module: Module) -> None:
    row = _row_of(module.name)
    assert row is not None, f"{module.name} is not in any package of the table"
    wrong = []
    for line, name in _imports(module.tree):
        top = name.partition(".")[0]
        if top in ("plog", "plogd"):
            allowed = _lies_in(name, row.names) or _lies_in(name, row.may_import)
        else:
            allowed = top in sys.stdlib_module_names or top in row.outside
        if not allowed:
            wrong.append(f"{module.path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


# -- cycles ----------------------------------------------------------------------------------------


def _import_lines() -> dict[str, dict[str, str]]:
    """Return plog's own modules that each module imports, with the place of the first import.

    The implicit import of a package's ``__init__`` does not count.
    """
    graph: dict[str, dict[str, str]] = {}
    for module in MODULES:
        lines = graph[module.name] = {}
        for line, name in _imports(module.tree):
            if name in NAMES and name != module.name:
                lines.setdefault(name, f"{module.path.relative_to(ROOT)}:{line} imports {name}")
    return graph


def test_imports_form_no_cycle() -> None:
    lines = _import_lines()
    texts = [
        "\n".join(
            [
                " -> ".join([*cycle, cycle[0]]),
                *(f"  {lines[a][b]}" for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)),
            ]
        )
        for cycle in cycles_of(lines)
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


def test_cycles_in_a_graph_are_found() -> None:
    graph = {
        "top": {"a", "d"},
        "a": {"b", "leaf"},
        "b": {"c"},
        "c": {"a", "b"},
        "d": {"e", "a"},
        "e": {"d", "leaf"},
        "leaf": set[str](),
    }
    assert cycles_of(graph) == [["b", "c"], ["d", "e"]]
    graph["c"].clear()
    graph["e"].clear()
    assert cycles_of(graph) == []


@every_module
def test_pure_package_accesses_the_machine_only_through_ports(module: Module) -> None:
    row = _row_of(module.name)
    if row is None or not row.pure:
        return
    where = module.path.relative_to(ROOT)
    wrong = [
        f"{where}:{line} imports {name}"
        for line, name in _imports(module.tree)
        if name.partition(".")[0] in FORBIDDEN_IN_PURE_PACKAGES
    ]
    if not _lies_in(module.name, READS_FILES):
        wrong += [f"{where}:{line} {what}" for line, what in _world_calls(module.tree)]
    assert wrong == []


def _world_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield uses of ``os``, ``open`` and the wall clock, as (line, description)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "pathlib"):
            yield node.lineno, f"imports names from {node.module}"
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
                yield node.lineno, f"reads the machine's clock with {node.value.id}.{node.attr}"


@every_module
def test_importing_a_module_does_not_install_the_reactor(module: Module) -> None:
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
