"""plog/cli/configs/command.py and configs/quotas.py against a simulated broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.configs.command import configure, describe
from plog.cli.configs.entities import entities_of
from plog.cli.parser import tool_parser
from plog.client.network.socket_network import run_blocking
from plog.errors import UnsupportedVersion
from plog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from plog.wire.messages.list_config_resources import ConfigResource as ListedResource
from plog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from plog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from plog.wire.schema import ApiMessage
from tests.helpers.client.fake_cluster import FakeCluster
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def configs(site: CliSite) -> Run:
    """The tool, connected to a broker with two topics."""
    create_topic(site.broker, "orders")
    create_topic(site.broker, "clicks", retention_ms="7")
    return site.tool(configure)


def test_topic_setting_is_set_described_and_deleted(configs: Run) -> None:
    changed = configs(
        "--alter", "--topic", "orders", "--add-config", "min.insync.replicas=2,retention.ms=9"
    )
    assert (changed.code, changed.out) == (0, "Completed updating config for topic orders.\n")
    head, in_sync, retention = configs("--describe", "--topic", "orders").lines
    assert head == "Dynamic configs for topic orders are:"
    assert in_sync.startswith(
        "  min.insync.replicas=2 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "min.insync.replicas=2, "
    )
    assert in_sync.endswith("DEFAULT_CONFIG:min.insync.replicas=1}")
    assert retention.startswith("  retention.ms=9 ")
    configs("--alter", "--topic", "orders", "--delete-config", "min.insync.replicas,retention.ms")
    assert configs("--describe", "--topic", "orders").lines == [
        "Dynamic configs for topic orders are:"
    ]


def test_describe_without_name_covers_all_topics(configs: Run) -> None:
    lines = configs("--describe", "--entity-type", "topics").lines
    assert [line for line in lines if not line.startswith(" ")] == [
        "Dynamic configs for topic clicks are:",
        "Dynamic configs for topic orders are:",
    ]
    assert any(line.startswith("  retention.ms=7 sensitive=false synonyms={") for line in lines)


def test_describe_all_includes_defaults(configs: Run) -> None:
    head, *settings = configs("--describe", "--topic", "orders", "--all").lines
    assert head == "All configs for topic orders are:"
    names = [line.split("=")[0].strip() for line in settings]
    assert names == sorted(names)
    assert {"cleanup.policy", "retention.ms", "segment.bytes"} <= set(names)


def test_broker_and_broker_defaults_are_separate(configs: Run) -> None:
    done = configs("--alter", "--broker-defaults", "--add-config", "log.retention.ms=5")
    assert done.out == "Completed updating default config for brokers in the cluster.\n"
    done = configs("--alter", "--broker", "1", "--add-config", "log.retention.ms=6")
    assert done.out == "Completed updating config for broker 1.\n"
    head, setting = configs("--describe", "--broker-defaults").lines
    assert head == "Default configs for brokers in the cluster are:"
    assert setting.startswith("  log.retention.ms=5 sensitive=false synonyms={")
    head, setting = configs("--describe", "--broker", "1").lines
    assert head == "Dynamic configs for broker 1 are:"
    assert setting.startswith("  log.retention.ms=6 sensitive=false synonyms={DYNAMIC_BROKER_")
    heads = [x for x in configs("--describe", "--entity-type", "brokers").lines if x[0] != " "]
    assert heads == [
        "Dynamic configs for broker 1 are:",
        "Default configs for brokers in the cluster are:",
    ]


def test_settings_are_read_from_a_file(configs: Run, tmp_path: Path) -> None:
    path = tmp_path / "topic.properties"
    path.write_text("retention.ms=11\ncleanup.policy=compact,delete\n")
    assert configs("--alter", "--topic", "orders", "--add-config-file", path).code == 0
    output = configs("--describe", "--topic", "orders").out
    assert "  retention.ms=11 " in output
    assert "  cleanup.policy=compact,delete " in output


def test_deleting_an_unset_setting_succeeds(configs: Run) -> None:
    done = configs("--alter", "--topic", "orders", "--delete-config", "retention.ms")
    assert (done.code, done.out) == (0, "Completed updating config for topic orders.\n")


def test_alter_json_contains_changed_settings(configs: Run) -> None:
    done = configs("--alter", "--topic", "orders", "--add-config", "retention.ms=7", "--json")
    assert json.loads(done.out) == {
        "altered": [{"entity_type": "topics", "entity_name": "orders"}],
        "set": ["retention.ms"],
        "deleted": [],
    }


def test_describe_json_contains_settings(configs: Run) -> None:
    [topic] = json.loads(configs("--describe", "--topic", "clicks", "--json").out)
    assert (topic["entity_type"], topic["entity_name"]) == ("topics", "clicks")
    assert topic["configs"] == [
        {
            "name": "retention.ms",
            "value": "7",
            "sensitive": False,
            "read_only": False,
            "source": "DYNAMIC_TOPIC_CONFIG",
        }
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--alter --topic none --add-config retention.ms=1", "none"),
        ("--describe --topic none --all", "The topic 'none' does not exist."),
        ("--alter --topic orders --add-config retention.ms=x", "retention.ms"),
        ("--alter --topic orders --add-config no.such=1", "no.such"),
        (
            "--alter --client c --delete-config producer_byte_rate",
            "Invalid config(s): producer_byte_rate: not set for client-id 'c'",
        ),
        (
            "--alter --broker-logger 1 --add-config no.such=INFO",
            "Invalid broker logger(s): no.such",
        ),
        (
            "--alter --user-defaults --delete-config producer_byte_rate",
            "Invalid config(s): producer_byte_rate: not set for the default user-principal",
        ),
        ("--alter --topic orders", "--alter requires --add-config"),
        ("--alter --topic orders --add-config a", "is not name=value"),
        ("--alter --topic t --add-config a=1 --delete-config a", "both set and delete"),
        ("--alter --topic t --add-config a=1 --add-config-file x", "cannot be combined"),
        ("--alter --entity-type topics --add-config a=1", "requires the name"),
        ("--describe --topic t --add-config a=1", "does not accept"),
        ("--describe", "no entity specified"),
        ("--topic orders", "exactly one of --describe and --alter"),
        ("--alter --user u --add-config no_such_rate=1", "is not a quota of users"),
        ("--alter --ip 127.0.0.1 --add-config producer_byte_rate=1", "is not a quota of ips"),
        ("--alter --user u --add-config producer_byte_rate=x", "a quota must be a number"),
        ("--alter --user u --add-config SCRAM-SHA-256=x", "use [iterations=8192,password=...]"),
        (
            "--alter --user u --add-config producer_byte_rate=1,SCRAM-SHA-256=[password=p]",
            "use separate commands",
        ),
        ("--alter --client c --add-config SCRAM-SHA-256=[password=p]", "require one user"),
    ],
)
def test_error_is_one_line(configs: Run, line: str, message: str) -> None:
    result = configs(*line.split())
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_force_option_is_ignored(configs: Run) -> None:
    done = configs("--alter", "--topic", "orders", "--add-config", "retention.ms=9", "--force")
    assert (done.code, done.err) == (0, "")


# -- quotas and credentials --------------------------------------------------------------------


def test_quotas_are_set_described_and_deleted(configs: Run) -> None:
    entity = ("--user", "alice", "--client", "c1")
    done = configs(
        "--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=50"
    )
    assert (done.code, done.out) == (0, "Completed updating config for user alice.\n")
    configs("--alter", "--client-defaults", "--add-config", "consumer_byte_rate=2.5e7")
    assert configs("--describe", *entity).lines == [
        "Quota configs for user-principal 'alice', client-id 'c1' are "
        "producer_byte_rate=1024.0, request_percentage=50.0"
    ]
    assert configs("--describe", "--client-defaults").lines == [
        "Quota configs for the default client-id are consumer_byte_rate=2.5E7"
    ]
    assert configs("--describe", "--entity-type", "users").lines == []
    done = configs("--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert done.code == 0
    assert configs("--describe", *entity).lines == []


def test_ip_quota_is_set_and_described(configs: Run) -> None:
    configs("--alter", "--ip", "127.0.0.1", "--add-config", "connection_creation_rate=10")
    assert configs("--describe", "--entity-type", "ips").lines == [
        "Quota configs for ip '127.0.0.1' are connection_creation_rate=10.0"
    ]


def test_scram_credentials_are_set_and_described_without_password(configs: Run) -> None:
    password = "SCRAM-SHA-512=[iterations=8192,password=secret]"
    done = configs("--alter", "--user", "alice", "--add-config", password)
    assert (done.code, done.out) == (0, "Completed updating config for user alice.\n")
    described = configs("--describe", "--user", "alice")
    assert described.lines == [
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=8192"
    ]
    assert "secret" not in described.out
    assert json.loads(configs("--describe", "--entity-type", "users", "--json").out)["users"] == [
        {
            "user": "alice",
            "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}],
        }
    ]
    both = "SCRAM-SHA-256=[iterations=8192,password=a],SCRAM-SHA-512=[password=a]"
    assert configs("--alter", "--user", "bob", "--add-config", both).code == 0
    [line] = configs("--describe", "--user", "bob").lines
    assert line.endswith("are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096")
    done = configs("--alter", "--user", "alice", "--delete-config", "SCRAM-SHA-512")
    assert done.code == 0
    assert configs("--describe", "--user", "alice").lines == []


def test_describing_a_missing_entity_prints_kafkas_message_and_exits_with_1(configs: Run) -> None:
    for option, name, kind in (
        ("--group", "nope", "group"),
        ("--client-metrics", "nope", "client-metric"),
        ("--topic", "nope", "topic"),
        ("--broker", "77", "broker"),
        ("--broker-logger", "77", "broker-logger"),
    ):
        result = configs("--describe", option, name)
        assert (result.code, result.err) == (1, "")
        assert result.out == f"The {kind} '{name}' doesn't exist and doesn't have dynamic config.\n"
        assert json.loads(configs("--describe", option, name, "--json").out) == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--group in-use", ["in-use"]),
        ("--group with-settings", ["with-settings"]),
        ("--group other", []),
        ("--entity-type groups", ["in-use", "with-settings"]),
    ],
)
def test_group_exists_if_it_is_listed_or_has_settings(
    words: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A plog broker has no settings of groups, so this test uses a fake cluster."""
    cluster = FakeCluster(brokers=[1])
    cluster.answer = _respond_about_groups
    arguments = tool_parser("configs", configure).parse_args(["--describe", *words.split()])
    described = describe(cluster.as_cluster(), entities_of(arguments), arguments)
    assert run_blocking(described) == (0 if names else 1)
    heads = [f"Dynamic configs for group {name} are:" for name in names]
    missing = ["The group 'other' doesn't exist and doesn't have dynamic config."]
    assert capsys.readouterr().out.splitlines() == (heads or missing)


def test_unlisted_group_is_described_when_groups_with_settings_are_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def respond(node_id: int, request: ApiMessage) -> ApiMessage:
        if isinstance(request, ListConfigResourcesRequest):
            raise UnsupportedVersion("no types")
        return _respond_about_groups(node_id, request)

    cluster = FakeCluster(brokers=[1])
    cluster.answer = respond
    arguments = tool_parser("configs", configure).parse_args(["--describe", "--group", "other"])
    run_blocking(describe(cluster.as_cluster(), entities_of(arguments), arguments))
    assert capsys.readouterr().out == "Dynamic configs for group other are:\n"


def _respond_about_groups(node_id: int, request: ApiMessage) -> ApiMessage:
    if isinstance(request, ListGroupsRequest):
        return ListGroupsResponse(groups=[ListedGroup(group_id="in-use")])
    if isinstance(request, ListConfigResourcesRequest):
        listed = ListedResource(resource_name="with-settings", resource_type=32)
        return ListConfigResourcesResponse(config_resources=[listed])
    assert isinstance(request, DescribeConfigsRequest)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        ]
    )
