"""plog/cli/cluster.py against a simulated broker."""

from __future__ import annotations

import json

from plog.cli.cluster import configure, endpoint_lines, endpoint_table
from plog.client.admin.values import BrokerDescription
from tests.unit.cli.conftest import CliSite, Output


def _run(site: CliSite, tool: str, *words: str) -> Output:
    servers = ["--bootstrap-server", site.sim.bootstrap_servers[0]]
    return site.run_line(configure, [tool, *servers, *words])


def test_cluster_id_is_printed(site: CliSite) -> None:
    cluster_id = site.broker.broker.cluster_id
    assert _run(site, "cluster-id").out == f"Cluster ID: {cluster_id}\n"
    assert json.loads(_run(site, "cluster-id", "--json").out) == {"cluster_id": cluster_id}


def test_list_endpoints_prints_brokers(site: CliSite) -> None:
    head, row = _run(site, "list-endpoints").lines
    assert head == "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  "
    assert row == "1          127.0.0.1 9092       null       unfenced   broker         "
    assert _run(site, "list-endpoints", "--include-fenced-brokers").lines == [head, row]
    [broker] = json.loads(_run(site, "list-endpoints", "--json").out)
    assert (broker["id"], broker["fenced"]) == (1, False)


def test_bootstrap_server_is_required_and_has_a_short_flag(site: CliSite) -> None:
    servers = site.sim.bootstrap_servers[0]
    assert site.run_line(configure, ["cluster-id", "-b", servers]).code == 0
    missing = site.run_line(configure, ["cluster-id"])
    assert missing.code == 1
    assert "--bootstrap-server HOST:PORT" in missing.err


def test_bootstrap_controller_is_an_error_for_a_plog_broker(site: CliSite) -> None:
    servers = ["--bootstrap-controller", site.sim.bootstrap_servers[0]]
    result = site.run_line(configure, ["list-endpoints", *servers])
    assert result.code == 1
    assert "this is a broker listener, not a controller listener" in result.err
    both = _run(site, "cluster-id", *servers)
    assert both.err == (
        "plog: cannot connect: --bootstrap-server and --bootstrap-controller cannot be combined\n"
    )


def test_controller_endpoints_omit_the_state_column() -> None:
    nodes = [BrokerDescription(id=3000, host="10.0.0.1", port=9093, rack=None)]
    head, row = endpoint_lines(endpoint_table(nodes, of_controllers=True))
    assert head == "ID         HOST     PORT       RACK       ENDPOINT_TYPE  "
    assert row == "3000       10.0.0.1 9093       null       controller     "


def test_include_fenced_brokers_is_an_error_for_controllers(site: CliSite) -> None:
    line = ["list-endpoints", "--include-fenced-brokers", "-C", site.sim.bootstrap_servers[0]]
    result = site.run_line(configure, line)
    assert (result.code, result.out) == (1, "")
    assert "requires --bootstrap-server" in result.err


def test_unregister_fails_on_a_plog_cluster(site: CliSite) -> None:
    """Kafka's tool prints the same message on standard output and exits with 0."""
    result = _run(site, "unregister", "--id", "7")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "plog: The target cluster does not support the broker unregistration API.\n"
    )
    assert "--id" in _run(site, "unregister").err
