"""Error codes of ZooKeeper that kazoo does not know."""

from __future__ import annotations

import pytest

pytest.importorskip("kazoo")
from kazoo.exceptions import EXCEPTIONS, NoAuthError

from plog.zookeeper.kazoo_errors import CODES, error_of
from plog.zookeeper.operations import ConnectionLost, ZooKeeperError


@pytest.mark.parametrize("code", CODES)
def test_unknown_code_is_an_error_with_its_name(code: int) -> None:
    error = error_of(EXCEPTIONS[code]())
    assert isinstance(error, ZooKeeperError)
    assert CODES[code] in str(error)


def test_timeout_of_the_leader_leaves_the_outcome_unknown() -> None:
    assert isinstance(error_of(EXCEPTIONS[-122]()), ConnectionLost)


def test_other_error_has_the_name_of_kazoo() -> None:
    assert str(error_of(NoAuthError())) == "ZooKeeper rejected the request: NoAuth"
