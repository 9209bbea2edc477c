"""Everything public has a docstring, in which no internal name occurs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import plog
import plog.client
import plogd.testing
from plog.client import admin

_MODULES = ("plog", "plog.aio", "plog.twisted", "plog.testing", "plog.client.simple")
_OURS = ("plog.", "plogd.")


def exported(module_name: str) -> dict[str, Any]:
    """Return the objects that a module exports."""
    module = importlib.import_module(module_name)
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
    return {f"{module_name}.{name}": getattr(module, name) for name in names}


def public_objects() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _MODULES:
        found |= exported(name)
    found["plog.client.simple.SimpleConsumer"] = plog.client.simple.SimpleConsumer
    for name in admin._MODULE_BY_NAME:
        found[f"plog.client.admin.{name}"] = getattr(admin, name)
    return {
        name: one for name, one in found.items() if inspect.isclass(one) or inspect.isfunction(one)
    }


def members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that this project defines."""
    for attribute in dir(kind):
        if attribute.startswith("_"):
            continue
        value = inspect.getattr_static(kind, attribute)
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not callable(function) or inspect.isclass(function):
            continue
        if str(getattr(inspect.unwrap(function), "__module__", "")).startswith(_OURS):
            yield f"{name}.{attribute}", function


def all_public() -> dict[str, Any]:
    found = public_objects()
    for name, one in tuple(found.items()):
        if inspect.isclass(one):
            found |= dict(members(name, one))
    return found


def internal_names() -> frozenset[str]:
    """Return the names of modules and classes that users do not import."""
    public = {name.rpartition(".")[2] for name in public_objects()}
    found: set[str] = set()
    for package in (plog.client, plogd.testing):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            found.add(info.name)
            found |= {
                name
                for name, one in vars(module).items()
                if inspect.isclass(one) and one.__module__ == info.name
            }
    return frozenset(name for name in found - public if not name.startswith("_"))


PUBLIC = all_public()
_INTERNAL = internal_names()
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*[A-Za-z0-9_]")


def test_public_surface_is_found() -> None:
    assert len(PUBLIC) > 500
    assert "CoordinatorConnection" in _INTERNAL
    assert "Producer" not in _INTERNAL


@pytest.mark.parametrize("name", PUBLIC)
def test_public_object_has_a_docstring_without_internal_names(name: str) -> None:
    text = PUBLIC[name].__doc__
    assert text, "missing docstring"
    # Names such as Ask and Node are also words, unless they are marked as names.
    marked = set(re.findall(r"`+([^`]+)`+", text))
    words = [x for x in _WORD.findall(text) if x in marked or re.search("[a-z._][A-Z]|[.]", x)]
    named = {word for word in words if word in _INTERNAL or word.partition(".")[0] in _INTERNAL}
    files = {word for word in words if word.endswith(".py")}
    assert not named | files
    assert "the module's text" not in text
