"""plog/wire/generated_source.py: generated functions."""

from __future__ import annotations

import traceback

import pytest

from plog.wire.generated_source import Source


def test_lines_compile_to_function() -> None:
    source = Source("halve(numbers)", integer=int)
    total = source.name("total")
    source.line(f"{total} = {source.constant([])}.copy()")
    with source.block("for number in numbers:"):
        source.line(f"{total}.append(integer(number / 2))")
    source.line(f"return {source.packing('hh', 'pack')}(*{total})")
    assert source.compile("halver")([2, 4]) == bytes.fromhex("00010002")


def test_names_are_unique() -> None:
    source = Source("f()")
    assert source.name("x") != source.name("x")


def test_traceback_shows_generated_line() -> None:
    source = Source("fail()")
    source.line("return 1 // 0")
    with pytest.raises(ZeroDivisionError) as caught:
        source.compile("failing function")()
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<failing function>", line 2, in fail\n    return 1 // 0' in shown
