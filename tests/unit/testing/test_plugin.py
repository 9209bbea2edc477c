"""The pytest plugin imports nothing expensive for projects that use none of its fixtures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from plogd.testing.plugin import check_names

PROGRAM = """
import sys
import pytest
before = set(sys.modules)
import plogd.testing.plugin
new = set(sys.modules) - before
assert not any(name.partition(".")[0] in ("twisted", "zope") for name in new), new
ours = {name for name in new if name.partition(".")[0] in ("plog", "plogd")}
assert ours == {"plogd", "plogd.testing", "plogd.testing.plugin"}, ours
assert len(new) < 8, new
"""


def test_plugin_imports_neither_twisted_nor_plog() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_broker_process_does_not_import_twisted_in_the_test_process() -> None:
    program = (
        "import sys, plogd.testing.broker_process\n"
        "assert not any(name.partition('.')[0] == 'twisted' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_setting_is_an_error_of_the_test() -> None:
    with pytest.raises(ValueError, match=r"num\.partition is not a setting; did you mean num\.p"):
        check_names({"num.partitions": "4", "num.partition": "4"})


@pytest.mark.parametrize(
    "name",
    ["num.partitions", "log.cleaner.threads", "listener.name.tls.ssl.keystore.location"],
)
def test_unused_kafka_setting_is_accepted(name: str) -> None:
    check_names({name: "1"})
