"""CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots.

On import, the module chooses the fastest of three implementations that works and passes a
self-test. All implementations accept any buffer without copying it, and can be called from any
thread.

Source: RFC 3720, appendix B.4 (the polynomial and its test vectors).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import crc32c as _package

Buffer: TypeAlias = bytes | bytearray | memoryview


class Crc32c(Protocol):
    """A function that returns the checksum of `data`, which follows bytes with checksum `value`."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


_MAX_ISAL_BYTES = 1 << 30  # The library takes a C int.


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer (part of its stable ABI): the location of an object's bytes."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _isal() -> Crc32c:
    """Return libisal2's function. Raises OSError or AttributeError if it is not installed."""
    # CDLL releases the interpreter lock during a call. pythonapi (below) keeps it, which functions
    # of CPython's API require.
    function = ctypes.CDLL("libisal.so.2").crc32_iscsi
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    function.restype = ctypes.c_uint
    # ctypes' own from_buffer rejects read-only objects, such as bytes.
    get_buffer = ctypes.pythonapi.PyObject_GetBuffer
    get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
    release_buffer = ctypes.pythonapi.PyBuffer_Release
    release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
    release_buffer.restype = None

    def crc32c_isal(data: Buffer, value: int = 0, /) -> int:
        view = _PyBuffer()
        # 0 is PyBUF_SIMPLE; raises BufferError if the memory is not contiguous.
        get_buffer(data, view, 0)
        try:
            # CRC-32C inverts the register before and after; `crc32_iscsi` does neither.
            register = value ^ 0xFFFFFFFF
            for start in range(0, view.len, _MAX_ISAL_BYTES):
                length = min(view.len - start, _MAX_ISAL_BYTES)
                register = function(view.buf + start, length, register)
            return int(register) ^ 0xFFFFFFFF
        finally:
            release_buffer(view)

    return crc32c_isal


def passes_self_test(function: Crc32c) -> bool:
    """Return whether `function` returns the published values, for whole data, chained and views."""
    check = b"123456789"
    return (
        function(check) == 0xE3069283
        and function(check[4:], function(check[:4])) == 0xE3069283
        and function(memoryview(b"-123456789-")[1:-1]) == 0xE3069283
        and function(bytearray(32)) == 0x8A9136AA  # RFC 3720: 32 bytes of zeros.
        and function(b"") == 0
    )


def _candidates() -> Iterator[tuple[str, Callable[[], Crc32c]]]:
    """Yield the name and factory of each implementation, fastest first."""
    # The PyPI package uses the processor's instruction if there is one.
    if getattr(_package, "hardware_based", False):
        yield "crc32c (hardware)", lambda: _package.crc32c
    # Debian's python3-crc32c is software only; Intel's libisal2 is 15 to 40 times faster.
    yield "libisal2", _isal
    yield "crc32c (software)", lambda: _package.crc32c


def choose() -> tuple[Crc32c, str]:
    """Return the fastest implementation that works here, and its name."""
    for name, make in _candidates():
        try:
            function = make()
        except (OSError, AttributeError):  # The library, or its function, is missing.
            continue
        # A library might load, but use a different polynomial or reject views.
        if passes_self_test(function):
            return function, name
    raise ImportError("cannot compute CRC-32C: no implementation passes the self-test")


crc32c, implementation = choose()
"""The function in use, and its name for log lines."""
