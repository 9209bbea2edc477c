"""The asyncio face's `Admin`."""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.admin import AdminCore
from plog.client.faces.asyncio.base import Client
from plog.client.faces.method_adapters import awaitable
from plog.client.settings import AdminSettings
from plog.client.settings.settings_loader import Servers


class Admin(Client[AdminCore]):
    """A client that manages topics, configs, groups and brokers.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topic("page-views", partitions=3)

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        made = AdminSettings.from_options(config, bootstrap_servers=bootstrap_servers, **settings)
        super().__init__(made, lambda cluster, network: AdminCore(cluster))

    alter_client_quotas = awaitable(AdminCore.alter_client_quotas)
    alter_config = awaitable(AdminCore.alter_config)
    alter_configs = awaitable(AdminCore.alter_configs)
    alter_group_offsets = awaitable(AdminCore.alter_group_offsets)
    alter_partition_reassignments = awaitable(AdminCore.alter_partition_reassignments)
    alter_replica_log_dirs = awaitable(AdminCore.alter_replica_log_dirs)
    alter_user_scram_credentials = awaitable(AdminCore.alter_user_scram_credentials)
    api_versions = awaitable(AdminCore.api_versions)
    create_acls = awaitable(AdminCore.create_acls)
    create_partitions = awaitable(AdminCore.create_partitions)
    create_topic = awaitable(AdminCore.create_topic)
    create_topics = awaitable(AdminCore.create_topics)
    delete_acls = awaitable(AdminCore.delete_acls)
    delete_group = awaitable(AdminCore.delete_group)
    delete_group_offsets = awaitable(AdminCore.delete_group_offsets)
    delete_groups = awaitable(AdminCore.delete_groups)
    delete_records = awaitable(AdminCore.delete_records)
    delete_topic = awaitable(AdminCore.delete_topic)
    delete_topics = awaitable(AdminCore.delete_topics)
    describe_acls = awaitable(AdminCore.describe_acls)
    describe_client_quotas = awaitable(AdminCore.describe_client_quotas)
    describe_cluster = awaitable(AdminCore.describe_cluster)
    describe_config = awaitable(AdminCore.describe_config)
    describe_configs = awaitable(AdminCore.describe_configs)
    describe_features = awaitable(AdminCore.describe_features)
    describe_group = awaitable(AdminCore.describe_group)
    describe_groups = awaitable(AdminCore.describe_groups)
    describe_log_dirs = awaitable(AdminCore.describe_log_dirs)
    describe_producers = awaitable(AdminCore.describe_producers)
    describe_topic = awaitable(AdminCore.describe_topic)
    describe_topics = awaitable(AdminCore.describe_topics)
    describe_user_scram_credentials = awaitable(AdminCore.describe_user_scram_credentials)
    elect_leaders = awaitable(AdminCore.elect_leaders)
    group_offsets = awaitable(AdminCore.group_offsets)
    incremental_alter_configs = awaitable(AdminCore.incremental_alter_configs)
    list_config_resources = awaitable(AdminCore.list_config_resources)
    list_group_offsets = awaitable(AdminCore.list_group_offsets)
    list_groups = awaitable(AdminCore.list_groups)
    list_offsets = awaitable(AdminCore.list_offsets)
    list_partition_reassignments = awaitable(AdminCore.list_partition_reassignments)
    list_topics = awaitable(AdminCore.list_topics)
    remove_members = awaitable(AdminCore.remove_members)
    unregister_broker = awaitable(AdminCore.unregister_broker)
    update_features = awaitable(AdminCore.update_features)
