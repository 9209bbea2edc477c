"""Argument checks cover every parameter of every admin operation; errors name the parameter."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from plog.client.admin import (
    AlterConfig,
    ConfigResource,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    QuotaEntity,
)
from plog.client.admin.argument_checks import config_text, conform
from plog.client.admin.core import AdminCore
from plog.client.network.cluster import Cluster
from plog.client.settings import AdminSettings
from plog.enums import AclOperation, ElectionType
from plog.types import TopicPartition
from tests.helpers.admin_calls import ADMIN_CALLS
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.unit.client.admin.conftest import Site

T0 = TopicPartition("t", 0)


class Nothing:
    """Fits nowhere."""

    def __repr__(self) -> str:
        return "<nothing>"


def parameters() -> list[Any]:
    return [
        pytest.param(name, parameter, id=f"{name}-{parameter}")
        for name in ADMIN_CALLS
        for parameter in inspect.signature(getattr(AdminCore, name)).parameters
        if parameter != "self"
    ]


@pytest.fixture(scope="module")
def admin() -> AdminCore:
    sim = SimNetwork()
    return AdminCore(Cluster(sim, AdminSettings(bootstrap_servers=sim.bootstrap_servers)))


@pytest.mark.parametrize(("name", "parameter"), parameters())
def test_wrong_argument_raises_type_error_naming_it(
    admin: AdminCore, name: str, parameter: str
) -> None:
    signature = inspect.signature(getattr(AdminCore, name))
    bound = signature.bind(admin, *ADMIN_CALLS[name])
    bound.arguments[parameter] = Nothing()
    with pytest.raises(TypeError, match=rf"^{name}: {parameter} is <nothing>: pass "):
        getattr(AdminCore, name)(*bound.args, **bound.kwargs)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda x: x.create_topic("t", partitions="3"), r"partitions is '3': pass an int or None"),
        (lambda x: x.create_topic("t", partitions=True), r"partitions is True: pass an int"),
        (lambda x: x.create_topic("t", configs={"a": [1]}), r"configs\['a'\] is \[1\]: pass"),
        (lambda x: x.create_topics([NewTopic("t", "3")]), r"topics\[0\]\.partitions is '3'"),
        (lambda x: x.create_topics("t"), r"topics is 't': pass a list, such as \['t'\]"),
        (lambda x: x.create_partitions({"t": "3"}), r"totals\['t'\] is '3'"),
        (lambda x: x.create_partitions({"t": NewPartitions("3")}), r"totals\['t'\]\.total is '3'"),
        (lambda x: x.delete_records({T0: 1.5}), r"before_offsets\[.*\] is 1\.5: pass an int"),
        (lambda x: x.delete_records({"t": 1}), r"a key of .*before_offsets is 't'"),
        (lambda x: x.describe_producers(T0), r"partitions is TopicPartition\("),
        (lambda x: x.remove_members("g", [MemberToRemove(5)]), r"members\[0\]\.member_id is 5"),
        (lambda x: x.alter_config(("topic", "t"), {}), r"resource\.type is 'topic'"),
        (lambda x: x.alter_client_quotas({QuotaEntity.of(user="a"): {"x": "1"}}), r"'x'\] is '1'"),
        (lambda x: x.elect_leaders("preferred"), r"kind is 'preferred'"),
        (lambda x: x.describe_log_dirs(["1"]), r"brokers\[0\] is '1'"),
        (lambda x: x.list_topics(include_internal=1), r"include_internal is 1: pass a bool"),
    ],
)
def test_error_names_the_wrong_part_of_an_argument(
    admin: AdminCore, call: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        call(admin)


def test_call_with_unknown_parameter_is_refused(admin: AdminCore) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'partition'"):
        admin.create_topic("t", partition=3)  # type: ignore[call-arg]


def test_config_values_may_be_numbers_and_bools(site: Site) -> None:
    configs = {"retention.ms": 5, "preallocate": True, "min.cleanable.dirty.ratio": 0.25}
    site.run(site.admin.create_topic("t", configs=configs))
    topic = ConfigResource.topic("t")
    found = site.run(site.admin.describe_config(topic))
    assert [found[name].value for name in configs] == ["5", "true", "0.25"]
    site.run(site.admin.alter_config(topic, {"retention.ms": 6, "preallocate": None}))
    changes = [AlterConfig("segment.bytes", 2_000_000)]
    site.run(site.admin.incremental_alter_configs({topic: changes}))
    found = site.run(site.admin.describe_config(topic))
    assert [found[name].value for name in ("retention.ms", "preallocate", "segment.bytes")] == [
        "6",
        "false",
        "2000000",
    ]
    assert config_text(False) == "false"


def test_plain_values_are_converted_to_typed_ones() -> None:
    assert conform([("t", 0)], Iterable[TopicPartition], "x") == [T0]
    assert conform(3, AclOperation, "x") is AclOperation.READ
    assert conform(ElectionType.UNCLEAN, ElectionType, "x") is ElectionType.UNCLEAN
    assert conform({"g": None}, Iterable[str] | Mapping[str, list[str] | None], "x") == {"g": None}
    assert conform((n for n in (1, 2)), Iterable[int], "x") == [1, 2]
    assert conform(("a", None), tuple[str, int | None], "x") == ("a", None)
    with pytest.raises(TypeError, match="pass 2 values"):
        conform(("a",), tuple[str, int], "x")


def test_integers_of_other_libraries_are_accepted() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    assert conform(Index(), int, "x") == 7
    assert conform(7, float | None, "x") == 7


def test_long_value_is_shown_by_its_type() -> None:
    with pytest.raises(TypeError, match="x is a list: pass an int"):
        conform(list(range(1000)), int, "x")
