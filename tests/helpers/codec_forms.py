"""The two forms of a module that may be compiled, independent of the form that plog itself uses.

The `outcome` of a call must be the same in both forms.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from plog import records, wire
from plog.compiled import INTERPRETED, folder_name, is_compiled
from plog.errors import KafkaError
from plog.records import column_decoder
from plog.records.batch import BatchHeader
from plog.records.record_columns import RecordColumns
from plog.records.record_spans import RecordSpans
from tests.helpers.outside import missing

FORMS = ("interpreted", "compiled")
CODEC = "plog.records.codec"
PACKAGES = (records, wire)
"""The packages with modules that can be compiled."""
ENCODER = "plog.records.record_encoder"


class Nine(NamedTuple):
    """The fields of a consumer's record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[object, ...]
    leader_epoch: int


def compiled_modules() -> dict[str, bool]:
    """Return the modules that can be compiled, and whether plog uses the compiled form of each."""
    names = [f"{package.__name__}.{name}" for package in PACKAGES for name in package.COMPILED]
    return {name: is_compiled(importlib.import_module(name)) for name in names}


def process_is_compiled(pid: int) -> bool:
    """Return whether a process has loaded compiled modules of plog. Raises OSError."""
    # The process maps each shared library that it has loaded; other Pythons have other suffixes.
    maps = Path(f"/proc/{pid}/maps").read_text()
    return any("/compiled_" in line and "/plog/" in line for line in maps.splitlines())


def need(form: str, name: str = CODEC) -> ModuleType:
    """Return a module in one of its `FORMS`; end the test if this form is unavailable."""
    if form == "interpreted":
        return interpreted(name)
    module = compiled(name)
    if module is None or os.environ.get(INTERPRETED):
        _no_compiled_form(name)
    assert module is not None
    return module


@cache
def interpreted(name: str = CODEC) -> ModuleType:
    """Return the module, interpreted from its source."""
    used = importlib.import_module(name)
    if not is_compiled(used):
        return used
    folder, _, module_name = _place(name)
    loader = SourceFileLoader(f"interpreted_{module_name}", f"{folder}/{module_name}.py")
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    _set_encoder(module, name, interpreted)
    return module


@cache
def compiled(name: str = CODEC) -> ModuleType | None:
    """Return the module compiled from exactly this source, or None."""
    used = importlib.import_module(name)
    if is_compiled(used):
        return used
    folder, modules, _ = _place(name)
    finder = FileFinder(
        f"{folder}/{folder_name(folder, modules)}", (ExtensionFileLoader, EXTENSION_SUFFIXES)
    )
    spec = finder.find_spec(name)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    _set_encoder(module, name, compiled)
    return module


def _set_encoder(module: ModuleType, name: str, load: Callable[[str], ModuleType | None]) -> None:
    """Let the codec re-export the encoder in the codec's own form, not in the form in use."""
    if name == CODEC:
        module.encode_records = load(ENCODER).encode_records  # type: ignore[union-attr]


def _place(name: str) -> tuple[str, tuple[str, ...], str]:
    """Return the folder of a module's sources, its package's compiled modules, and its name."""
    package_name, _, module_name = name.rpartition(".")
    package = importlib.import_module(package_name)
    return package.__path__[-1], package.COMPILED, module_name


def _no_compiled_form(name: str) -> None:
    if os.environ.get(INTERPRETED):
        import pytest

        pytest.skip(f"{INTERPRETED} is set")
    missing(f"{name} is not compiled; python setup.py build_ext --inplace says why")


def read_columns(
    codec: ModuleType, data: Any, header: BatchHeader, from_offset: int = 0, max_rows: int = 1000
) -> list[object]:
    """Return the result of `ColumnDecoder` and every column that it fills, with this form."""
    filled = RecordColumns()
    with mock.patch.object(column_decoder, "decode_into_columns", codec.decode_into_columns):
        decoder = column_decoder.ColumnDecoder(filled, max_rows=max_rows, records_count=max_rows)
        result = decoder.decode(data, header, from_offset=from_offset)
        decoder.close()
    return [result, *(getattr(filled, name) for name in filled.__slots__)]


def read_spans(codec: ModuleType, data: Any, header: BatchHeader) -> list[object]:
    """Return all rows that this form of `decode_spans` fills."""
    spans = RecordSpans()
    codec.decode_spans(data, header, spans)
    return [spans.count, *(getattr(spans, name) for name in spans.__slots__ if name != "count")]


def outcome(function: Callable[..., Any], *args: Any, **keywords: Any) -> tuple[object, ...]:
    """Return the result (item by item for an iterator), or the exception that is raised.

    For Python's own errors, only the type counts: their texts differ between C and Python.
    """
    items: list[str] = []
    try:
        result = function(*args, **keywords)
        if hasattr(result, "__next__"):
            for item in result:  # The items before an error count.
                items.append(repr(item))
            return ("end", items)
    except KafkaError as error:
        return (type(error), str(error), items)
    except Exception as error:
        return (type(error), items)
    return ("value", repr(result))
