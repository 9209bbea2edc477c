"""The three faces have the same methods, names and docstrings."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import plog
from plog.client.admin import AdminCore
from plog.client.admin.base import is_operation
from plog.client.faces import asyncio as asyncio_face
from plog.client.faces import blocking
from plog.client.faces import twisted as twisted_face
from plog.client.faces.method_adapters import direct, in_engine_thread
from plog.version import VERSION

FACES = (blocking, asyncio_face, twisted_face)


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_each_face_has_the_same_methods(name: str) -> None:
    first, *others = (public_names(getattr(face, name)) for face in FACES)
    for other in others:
        # Only Twisted's flow control needs a name that the blocking face lacks.
        assert other - first <= {"is_full"}
        assert first <= other


@pytest.mark.parametrize("face", FACES)
def test_admin_has_every_operation_of_the_engine(face: Any) -> None:
    engine = {name for name, method in inspect.getmembers(AdminCore) if is_operation(name, method)}
    assert len(engine) > 40
    assert engine <= public_names(face.Admin)


@pytest.mark.parametrize("face", FACES)
def test_method_has_the_docstring_and_name_of_the_engine(face: Any) -> None:
    assert face.Admin.create_topic.__doc__ == AdminCore.create_topic.__doc__
    assert face.Admin.create_topic.__name__ == "create_topic"


def test_coroutine_method_cannot_be_adapted_as_a_plain_one() -> None:
    class Engine:
        async def act(self) -> None: ...

    for wrapper in (in_engine_thread, direct):
        with pytest.raises(AssertionError, match="must be awaited"):
            wrapper(Engine.act)


def test_every_exported_name_of_plog_exists() -> None:
    for name in plog.__all__:
        assert getattr(plog, name) is not None


def test_importing_plog_imports_neither_twisted_nor_a_codec() -> None:
    program = (
        "import plog, sys; print([n for n in sys.modules if n.startswith(('twisted', 'lz4'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_aio_twisted_and_version_are_attributes_of_plog() -> None:
    program = (
        "import plog; print(plog.aio.Producer.__name__, plog.twisted.Admin.__name__);"
        "print(plog.__version__, {'aio', 'twisted', '__version__'} <= {*dir(plog)})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["Producer", "Admin", VERSION, "True"]


def test_unknown_name_of_plog_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        _ = plog.NoSuchName
