"""plog/cli/cluster.py at a whole broker."""

from __future__ import annotations

import json

from plog.cli.cluster import configure, endpoint_lines, endpoint_table
from plog.client.admin.values import BrokerDescription
from tests.unit.cli.conftest import CliSite, Output


def _run(site: CliSite, tool: str, *words: str) -> Output:
    servers = ["--bootstrap-server", site.sim.bootstrap_servers[0]]
    return site.ended(configure, [tool, *servers, *words])


def test_the_id_is_told(site: CliSite) -> None:
    cluster_id = site.broker.broker.cluster_id
    assert _run(site, "cluster-id").out == f"Cluster ID: {cluster_id}\n"
    assert json.loads(_run(site, "cluster-id", "--json").out) == {"cluster_id": cluster_id}


def test_the_brokers_are_told(site: CliSite) -> None:
    head, row = _run(site, "list-endpoints").lines
    assert head == "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  "
    assert row == "1          127.0.0.1 9092       null       unfenced   broker         "
    assert _run(site, "list-endpoints", "--include-fenced-brokers").lines == [head, row]
    [broker] = json.loads(_run(site, "list-endpoints", "--json").out)
    assert (broker["id"], broker["fenced"]) == (1, False)


def test_the_servers_have_a_short_name_and_are_needed(site: CliSite) -> None:
    servers = site.sim.bootstrap_servers[0]
    assert site.ended(configure, ["cluster-id", "-b", servers]).code == 0
    missing = site.ended(configure, ["cluster-id"])
    assert missing.code == 1
    assert "--bootstrap-server HOST:PORT" in missing.err


def test_a_plog_broker_is_no_controller(site: CliSite) -> None:
    servers = ["--bootstrap-controller", site.sim.bootstrap_servers[0]]
    ended = site.ended(configure, ["list-endpoints", *servers])
    assert ended.code == 1
    assert "this is a broker's listener, not a controller's" in ended.err
    both = _run(site, "cluster-id", *servers)
    assert both.err == (
        "plog: cannot connect: --bootstrap-server and --bootstrap-controller exclude each other\n"
    )


def test_controllers_have_no_state() -> None:
    nodes = [BrokerDescription(id=3000, host="10.0.0.1", port=9093, rack=None)]
    head, row = endpoint_lines(endpoint_table(nodes, of_controllers=True))
    assert head == "ID         HOST     PORT       RACK       ENDPOINT_TYPE  "
    assert row == "3000       10.0.0.1 9093       null       controller     "


def test_fenced_brokers_are_not_asked_of_controllers(site: CliSite) -> None:
    line = ["list-endpoints", "--include-fenced-brokers", "-C", site.sim.bootstrap_servers[0]]
    ended = site.ended(configure, line)
    assert (ended.code, ended.out) == (1, "")
    assert "requires --bootstrap-server" in ended.err


def test_a_plog_cluster_cannot_forget_a_broker(site: CliSite) -> None:
    """Kafka's tool tells the same on its standard output, and ends as if it were done."""
    ended = _run(site, "unregister", "--id", "7")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "plog: The target cluster does not support the broker unregistration API.\n"
    )
    assert "--id" in _run(site, "unregister").err
