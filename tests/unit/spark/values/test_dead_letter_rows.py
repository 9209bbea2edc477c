"""Which rows can be dead letters; tests/spark runs the query."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.values.dead_letter_rows import check_dead_letter_columns


def test_rows_of_decode_are_accepted() -> None:
    check_dead_letter_columns(["value", "id", "_corrupt_record", "_error"])


def test_rows_without_the_columns_of_decode_are_refused() -> None:
    with pytest.raises(ConfigError, match="the rows have no column _corrupt_record, _error"):
        check_dead_letter_columns(["key", "value"])
