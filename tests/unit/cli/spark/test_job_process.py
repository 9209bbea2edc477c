"""The process of a job: which records of py4j's log it drops at an interrupt."""

from __future__ import annotations

import logging
import sys

import pytest

from plog.cli.spark.job_process import is_not_an_interrupt


def _record(*errors: type[BaseException]) -> logging.LogRecord:
    """Return the record of the last error, which was raised while the others were handled."""

    def raise_from(index: int) -> None:
        try:
            if index:
                raise_from(index - 1)
        finally:
            raise errors[index]

    try:
        raise_from(len(errors) - 1)
    except BaseException:
        return logging.LogRecord("py4j", logging.ERROR, __file__, 1, "m", (), sys.exc_info())
    raise AssertionError("no error was raised")


@pytest.mark.parametrize(
    "errors", [(KeyboardInterrupt,), (KeyboardInterrupt, BrokenPipeError, ValueError)]
)
def test_record_of_an_interrupt_is_dropped(errors: tuple[type[BaseException], ...]) -> None:
    assert not is_not_an_interrupt(_record(*errors))


def test_records_of_other_errors_are_kept() -> None:
    assert is_not_an_interrupt(_record(ValueError, BrokenPipeError))
    assert is_not_an_interrupt(
        logging.LogRecord("py4j", logging.ERROR, __file__, 1, "message", (), None)
    )
