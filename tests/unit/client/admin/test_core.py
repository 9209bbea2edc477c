"""The admin client's engine as a whole: its imports, its operations and its retries."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import pytest

from plog.client import admin
from plog.client.admin.base import is_operation
from plog.client.admin.core import AdminCore
from plog.client.errors import ConnectionFailed
from plog.errors import KafkaError
from tests.unit.client.admin.conftest import Site

_REACTORS = {"twisted", "asyncio", "multiprocessing", "OpenSSL", "cryptography"}


def _imported(*modules: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after importing `modules`."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(json.loads(done.stdout))


def test_admin_needs_no_reactor() -> None:
    loaded = _imported(
        "plog.client.admin.core",
        "plog.client.network.cluster",
        "plog.client.network.socket_network",
    )
    assert {name for name in loaded if name.partition(".")[0] in _REACTORS} == set()


def test_family_is_imported_without_the_others() -> None:
    loaded = _imported("plog.client.admin.topic_descriptions")
    families = {name for name in loaded if name.startswith("plog.client.admin.")}
    assert {name.rpartition(".")[2] for name in families} == {
        "argument_checks",
        "base",
        "results",
        "topic_descriptions",
        "values",
    }


def test_public_names_are_exported_by_the_package() -> None:
    for name, module in admin._MODULE_BY_NAME.items():
        home = importlib.import_module(module)
        assert getattr(admin, name) is getattr(home, name)
    assert "NewTopic" in dir(admin)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        admin.Nothing  # noqa: B018


def test_every_operation_is_a_typed_coroutine_with_a_docstring() -> None:
    public = {name: x for name, x in inspect.getmembers(AdminCore) if not name.startswith("_")}
    operations = {name: x for name, x in public.items() if is_operation(name, x)}
    assert operations == public
    assert len(operations) > 40
    for name, function in operations.items():
        assert inspect.getdoc(function), name
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name


def test_unreachable_cluster_fails_after_the_api_timeout(
    site: Site,
) -> None:
    site.sim.refuses = True
    started_s = site.sim.now_s()
    with pytest.raises(ConnectionFailed, match="refused"):
        site.run(site.admin.list_topics())
    assert site.sim.now_s() - started_s == pytest.approx(60, abs=2)


def test_restarted_broker_is_found_again(site: Site) -> None:
    site.run(site.admin.create_topic("a"))
    site.sim.restart()
    assert list(site.run(site.admin.list_topics())) == ["a"]
    site.sim.drop_all()
    with pytest.raises(KafkaError):
        site.run(site.admin.create_topic("a"))
