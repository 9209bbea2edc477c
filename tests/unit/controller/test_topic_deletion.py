"""Deletions that were marked, by an earlier controller or by another program."""

from __future__ import annotations

import pytest

from plog.errors import KafkaStorageError, UnknownTopicOrPartition
from plog.zookeeper.operations import Create, Delete, SetData
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.topic_creation import NewTopic
from plogd.metadata.store import Change, Key
from plogd.testing.mock_zookeeper import Fault
from tests.helpers.controller_site import (
    ControllerSite,
    candidate,
    embedded,
    on_zookeeper,
    zookeeper_of,
)
from tests.helpers.metadata_sites import fault_once
from tests.helpers.sim.sim_ports import outcome

MARK: Key = ("delete_topic", "t")
MARK_PATH = "/admin/delete_topics/t"


def mark(site: ControllerSite, name: str = "t") -> None:
    """Write the mark as another program."""
    zookeeper_of(site).zookeeper.write(Create(path=f"/admin/delete_topics/{name}"))


def check_removed(site: ControllerSite) -> None:
    zookeeper = zookeeper_of(site).zookeeper
    for folder in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert zookeeper.names(folder) == []
    assert "t" not in site.brokers.hosted


class TestMarksOfOtherPrograms:
    """kafka-topics with ZooKeeper writes the mark, and the controller deletes the topic."""

    def test_mark_deletes_a_topic_while_the_controller_is_running(self) -> None:
        site = on_zookeeper()
        site.created("t", 100)
        mark(site)
        zookeeper_of(site).run_for(1000)
        check_removed(site)
        assert site.site.ports.reports[-1] == "deleted topic t, which was marked for deletion"
        assert site.created("t", 3).name == "t"

    def test_mark_of_an_unknown_topic_is_removed(self) -> None:
        site = on_zookeeper()
        mark(site)
        zookeeper_of(site).run_for(100)
        check_removed(site)
        report = "removed the mark to delete topic t: it does not exist"
        assert site.site.ports.reports[1:] == [report]  # The first one is the election.

    def test_mark_is_removed_when_deletion_is_disabled(self) -> None:
        site = on_zookeeper()
        site.may_delete = False
        topic = site.created("t", 2)
        mark(site)
        zookeeper_of(site).run_for(100)
        assert zookeeper_of(site).zookeeper.names("/admin/delete_topics") == []
        assert site.brokers.hosted == {"t": 2}
        mark(site)
        second = candidate(site)
        second.may_delete = False
        zookeeper_of(site).client.kill()
        assert second.settle(second.loading) == [topic]
        zookeeper_of(second).run_for(100)
        assert zookeeper_of(second).zookeeper.names("/admin/delete_topics") == []

    def test_mark_of_a_damaged_topic_is_kept(self) -> None:
        """The topic has to be corrected before it can be deleted."""
        first = on_zookeeper()
        first.created("t", 2)
        zookeeper = zookeeper_of(first).zookeeper
        data = zookeeper.data("/brokers/topics/t") or b""
        zookeeper.write(SetData(path="/brokers/topics/t", data=b"{"))
        second = candidate(first)
        zookeeper_of(first).client.close()
        second.settle(second.loading)
        mark(second)
        zookeeper_of(second).run_for(1000)
        assert zookeeper.names("/admin/delete_topics") == ["t"]
        report = "cannot complete the deletion of topic t: cannot decode the znode"
        assert second.site.ports.reports[-1].startswith(report)
        zookeeper.write(SetData(path="/brokers/topics/t", data=data), Delete(path="/controller"))
        zookeeper_of(second).run_for(1000)
        check_removed(second)

    def test_mark_waits_for_the_operation_in_progress(self) -> None:
        site = on_zookeeper()
        creation = site.create("t", 200)
        mark(site)
        zookeeper_of(site).run_for(1000)
        assert outcome(creation).name == "t"
        check_removed(site)
        assert site.brokers.calls == ["start t", "stop t"]

    def test_many_marks_are_handled(self) -> None:
        site = on_zookeeper()
        names = [f"t{number}" for number in range(40)]
        for name in names:
            site.created(name, 1)
        for name in [*names, *(f"x{number}" for number in range(40))]:
            mark(site, name)
        zookeeper_of(site).run_for(5000)
        check_removed(site)
        assert site.brokers.hosted == {}


class TestPendingDeletions:
    """The mark of an earlier controller."""

    def interrupted(self) -> ControllerSite:
        """Return a controller that starts after another one has marked the topic t."""
        first = on_zookeeper()
        first.created("t", 70)
        first.created("u", 1)
        second = candidate(first)
        mark(first)
        zookeeper_of(first).client.close()
        return second

    def test_live_topics_are_loaded_before_pending_deletions(self) -> None:
        second = self.interrupted()
        second.brokers.held = []
        topics = second.settle(second.loading)
        assert [topic.name for topic in topics] == ["u"]
        zookeeper_of(second).run_for(1000)
        # The brokers have not stopped the topic yet, and other operations do not wait for this.
        assert second.brokers.calls == ["stop t"]
        stop = second.brokers.held.pop()
        second.brokers.held = None
        second.created("v", 1)
        stop.succeed(None)
        zookeeper_of(second).run_for(1000)
        assert zookeeper_of(second).zookeeper.names("/brokers/topics") == ["u", "v"]

    def test_topic_that_is_being_deleted_gets_no_partitions(self) -> None:
        second = self.interrupted()
        second.brokers.held = []
        second.settle(second.loading)
        with pytest.raises(UnknownTopicOrPartition):
            second.controller.plan_partitions(NewPartitions(topic="t", count=99))

    def test_creation_of_the_name_waits_for_the_deletion(self) -> None:
        second = self.interrupted()
        second.brokers.held = []
        second.settle(second.loading)
        # Automatic creation plans the topic first.
        assert len(second.controller.plan(NewTopic(name="t")).assignments) == 2
        creation = second.create("t", 2)
        zookeeper_of(second).run_for(1000)
        assert not creation.done
        held, second.brokers.held = second.brokers.held, None
        for later in held:
            later.succeed(None)
        assert len(second.settle(creation).partitions) == 2
        zookeeper_of(second).run_for(1000)
        assert second.brokers.hosted == {"t": 2}
        assert second.brokers.calls == ["stop t", "start t"]

    def test_failed_deletion_is_reported_and_completed_by_the_next_creation(self) -> None:
        second = self.interrupted()
        second.brokers.held = []
        second.settle(second.loading)
        [stop], second.brokers.held = second.brokers.held, None
        stop.fail(KafkaStorageError("disk failed"))
        report = "cannot complete the deletion of topic t: disk failed;"
        assert second.site.ports.reports[-1].startswith(report)
        assert second.settle(second.create("t", 2)).name == "t"
        assert second.brokers.hosted == {"t": 2}

    def test_topic_that_is_being_deleted_is_not_completed(self) -> None:
        """It lacks states because its removal was interrupted."""
        first = on_zookeeper()
        first.created("t", 2)
        second = candidate(first)
        mark(first)
        paths = ("partitions/0/state", "partitions/0")
        zookeeper_of(first).zookeeper.write(
            *(Delete(path=f"/brokers/topics/t/{path}") for path in paths)
        )
        zookeeper_of(first).client.close()
        assert second.settle(second.loading) == []
        zookeeper_of(second).run_for(1000)
        check_removed(second)
        assert second.brokers.calls == ["stop t"]


class TestDeletion:
    """A deletion that a client requests."""

    def test_mark_is_written_before_the_topic_is_stopped(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 2)
        site.brokers.held = []
        deletion = site.controller.delete_topic("t", topic.topic_id)
        zookeeper_of(site).run_for(100)
        assert site.brokers.calls == ["start t", "stop t"]
        zookeeper = zookeeper_of(site).zookeeper
        for folder in ("/admin/delete_topics", "/brokers/topics"):
            assert zookeeper.names(folder) == ["t"]
        site.brokers.held[0].succeed(None)
        site.settle(deletion)
        check_removed(site)

    def test_embedded_store_has_no_mark_and_removes_the_topic_first(self) -> None:
        site = embedded()
        topic = site.created("t", 2)
        site.brokers.held = []
        deletion = site.controller.delete_topic("t", topic.topic_id)
        site.site.ports.settle()
        assert site.brokers.calls == ["start t", "stop t"]
        assert site.site.store.load(("topic",)) == {}
        assert not deletion.done

    def test_topic_that_another_program_changes_is_deleted_nevertheless(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 2)
        site.brokers.held = []
        deletion = site.controller.delete_topic("t", topic.topic_id)
        zookeeper_of(site).run_for(100)
        # Another program adds a partition while the brokers stop the topic.
        value, version = site.site.store.get(("topic", "t"))
        value = type(value)(topic_id=value.topic_id, assignments={**value.assignments, 2: (1,)})
        change = Change(key=("topic", "t"), value=value, expected=version)
        site.settle(site.site.store.write([change], 1))
        site.brokers.held[0].succeed(None)
        site.settle(deletion)
        check_removed(site)

    def test_topic_that_another_program_deletes_is_deleted(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 1)
        site.brokers.held = []
        deletion = site.controller.delete_topic("t", topic.topic_id)
        zookeeper_of(site).run_for(100)
        paths = ("/partitions/0/state", "/partitions/0", "/partitions", "")
        zookeeper_of(site).zookeeper.write(
            *(Delete(path=f"/brokers/topics/t{path}") for path in paths),
            Delete(path="/config/topics/t"),
        )
        site.brokers.held[0].succeed(None)
        site.settle(deletion)
        check_removed(site)

    def test_second_deletion_waits_and_finds_no_topic(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 100)
        first, second = [site.controller.delete_topic("t", topic.topic_id) for _ in range(2)]
        site.settle(first)
        with pytest.raises(UnknownTopicOrPartition):
            site.settle(second)

    def test_connection_lost_during_the_mark_does_not_lose_the_deletion(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 2)
        fault_once(zookeeper_of(site).zookeeper, Fault.LOSE_AFTER)
        deletion = site.controller.delete_topic("t", topic.topic_id)
        zookeeper_of(site).run_for(1000)
        with pytest.raises(Exception, match="not the active controller"):
            outcome(deletion)
        assert site.elected == [[]]
        check_removed(site)
