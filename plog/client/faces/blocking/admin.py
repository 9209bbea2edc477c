"""The blocking face's `Admin`."""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.admin import AdminCore
from plog.client.faces.blocking.base import Client
from plog.client.faces.method_adapters import blocking
from plog.client.settings import AdminSettings
from plog.client.settings.settings_loader import Servers


class Admin(Client):
    """A client that manages topics, configs, groups and brokers. Thread-safe.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topic("page-views", partitions=3)

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
        super().__init__(made)
        self._core = AdminCore(self._cluster)

    alter_client_quotas = blocking(AdminCore.alter_client_quotas)
    alter_config = blocking(AdminCore.alter_config)
    alter_configs = blocking(AdminCore.alter_configs)
    alter_group_offsets = blocking(AdminCore.alter_group_offsets)
    alter_partition_reassignments = blocking(AdminCore.alter_partition_reassignments)
    alter_replica_log_dirs = blocking(AdminCore.alter_replica_log_dirs)
    alter_user_scram_credentials = blocking(AdminCore.alter_user_scram_credentials)
    api_versions = blocking(AdminCore.api_versions)
    create_acls = blocking(AdminCore.create_acls)
    create_partitions = blocking(AdminCore.create_partitions)
    create_topic = blocking(AdminCore.create_topic)
    create_topics = blocking(AdminCore.create_topics)
    delete_acls = blocking(AdminCore.delete_acls)
    delete_group = blocking(AdminCore.delete_group)
    delete_group_offsets = blocking(AdminCore.delete_group_offsets)
    delete_groups = blocking(AdminCore.delete_groups)
    delete_records = blocking(AdminCore.delete_records)
    delete_topic = blocking(AdminCore.delete_topic)
    delete_topics = blocking(AdminCore.delete_topics)
    describe_acls = blocking(AdminCore.describe_acls)
    describe_client_quotas = blocking(AdminCore.describe_client_quotas)
    describe_cluster = blocking(AdminCore.describe_cluster)
    describe_config = blocking(AdminCore.describe_config)
    describe_configs = blocking(AdminCore.describe_configs)
    describe_features = blocking(AdminCore.describe_features)
    describe_group = blocking(AdminCore.describe_group)
    describe_groups = blocking(AdminCore.describe_groups)
    describe_log_dirs = blocking(AdminCore.describe_log_dirs)
    describe_producers = blocking(AdminCore.describe_producers)
    describe_topic = blocking(AdminCore.describe_topic)
    describe_topics = blocking(AdminCore.describe_topics)
    describe_user_scram_credentials = blocking(AdminCore.describe_user_scram_credentials)
    elect_leaders = blocking(AdminCore.elect_leaders)
    group_offsets = blocking(AdminCore.group_offsets)
    incremental_alter_configs = blocking(AdminCore.incremental_alter_configs)
    list_config_resources = blocking(AdminCore.list_config_resources)
    list_group_offsets = blocking(AdminCore.list_group_offsets)
    list_groups = blocking(AdminCore.list_groups)
    list_offsets = blocking(AdminCore.list_offsets)
    list_partition_reassignments = blocking(AdminCore.list_partition_reassignments)
    list_topics = blocking(AdminCore.list_topics)
    remove_members = blocking(AdminCore.remove_members)
    unregister_broker = blocking(AdminCore.unregister_broker)
    update_features = blocking(AdminCore.update_features)

    def close(self, timeout_s: float | None = None) -> None:
        """Close the client immediately; closing it again has no effect."""
        # In the child of a fork, the connections belong to the parent.
        if not self._is_closed and not self._is_forked:
            self._run(self._cluster.close)
            self._is_closed = True
