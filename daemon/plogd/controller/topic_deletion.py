"""The deletion of topics, and the marks that request it.

A store that removes topics in several steps keeps a mark ("delete_topic", name) of each topic that
is being deleted. The controller writes the mark first, then stops the topic, and removes it last,
with its mark. If the controller stops in between, the next controller finds the mark, and repeats
all steps. Other programs request a deletion by writing a mark: kafka-topics with ZooKeeper does.

Called by the active controller, on the reactor thread. Source: Kafka 3.9 TopicDeletionManager,
KafkaController.TopicDeletion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from plog.errors import KafkaError, KafkaStorageError, NotController
from plogd.controller.brokers import Brokers
from plogd.controller.controller_context import ControllerContext
from plogd.controller.exclusive_names import ExclusiveNames
from plogd.controller.term import Term
from plogd.controller.topic_creation import Defaults
from plogd.controller.topic_writes import changed_by_other
from plogd.metadata.cache import TopicState
from plogd.metadata.store import ABSENT, Change, Conflict, Key, MetadataStore
from plogd.ports import Report, spawn

_MAX_TRIES: Final = 10
"""Number of attempts to remove a topic that another program changes again and again."""


class TopicDeletion:
    """Deletes topics in one term. Operations on a topic call it while they use the name."""

    def __init__(
        self,
        term: Term,
        *,
        context: ControllerContext,
        names: ExclusiveNames,
        store: MetadataStore,
        brokers: Brokers,
        defaults: Callable[[], Defaults],
        report: Report,
    ) -> None:
        self._term = term
        self._context = context
        self._names = names
        self._store = store
        self._brokers = brokers
        self._defaults = defaults
        self._report = report
        self._marked: deque[str] = deque()
        """Names with a mark, or that had one when they were added."""
        self._has_begun = False
        self._is_deleting_marked = False

    def is_due(self, name: str) -> bool:
        """Return whether the topic has a mark and is to be deleted."""
        return self._is_marked(name) and self._defaults().delete_topic_enable

    async def delete(self, topic: TopicState) -> None:
        """Delete a topic completely; each step can be repeated after a failure.

        Raises KafkaStorageError.
        """
        if self._store.keeps_deletion_marks:
            # The next controller finds the mark, and completes the deletion.
            await self._mark(topic.name)
            self._context.deleting.add(topic.name)
        # Write the removal last: while the topic is recorded, the next attempt stops it again. A
        # log that remained open would be mistaken for the log of a new topic with this name.
        await self._term.run(lambda: self._brokers.stop_topic(topic))
        await self.remove(topic.name)

    async def remove(self, name: str) -> None:
        """Remove the topic from the store and from the context."""
        known = self._context.get(name)
        assert known is not None, "only known topics are removed"
        expected = known.version
        for _ in range(_MAX_TRIES):
            change = Change(key=("topic", name), value=None, expected=expected)
            [outcome] = await self._term.write([change])
            if not isinstance(outcome, Conflict):
                self._context.drop(name)
                return
            if outcome.version == ABSENT:  # Another program has removed it.
                self._context.drop(name)
                await self._unmark(name)
                return
            # The topic is deleted even if another program has changed it, unless it is another one.
            if outcome.value.topic_id != known.state.topic_id:
                break
            expected = outcome.version
        raise changed_by_other(name)

    # -- marks --------------------------------------------------------------------------------

    def _is_marked(self, name: str) -> bool:
        return self._store.get(("delete_topic", name))[1] != ABSENT

    async def _mark(self, name: str) -> None:
        if not self._is_marked(name):
            # A conflict means that another program has just written the same mark.
            change = Change(key=("delete_topic", name), value=True, expected=ABSENT)
            await self._term.write([change])

    async def _unmark(self, name: str) -> None:
        key: Key = ("delete_topic", name)
        _, version = self._store.get(key)
        if version != ABSENT:
            # A conflict means that another program has just removed the mark.
            await self._term.write([Change(key=key, value=None, expected=version)])

    def begin(self) -> None:
        """Start to delete the topics whose deletion is pending, in the background.

        Called after all topics are loaded, and not while they are: a deletion waits for brokers,
        and the other topics must not wait for that.
        """
        self._has_begun = True
        self._marked += [str(key[1]) for key in self._store.load(("delete_topic",))]
        self._delete_marked()

    def marked(self, name: str) -> None:
        """Delete the topic in the background: this or another program has written its mark."""
        if self._has_begun:
            self._marked.append(name)
            self._delete_marked()

    def _delete_marked(self) -> None:
        if self._marked and not self._is_deleting_marked:
            self._is_deleting_marked = True
            spawn(self._delete_all_marked()).then(_ignore, _raise)

    async def _delete_all_marked(self) -> None:
        try:
            while self._marked:
                await self._try_to_delete_marked(self._marked.popleft())
        except NotController:
            pass  # The next controller finds the marks.
        finally:
            self._is_deleting_marked = False

    async def _try_to_delete_marked(self, name: str) -> None:
        try:
            await self._names.run(name, lambda: self._delete_marked_topic(name))
        except NotController:
            raise
        except KafkaError as error:
            self._report(
                "cannot complete the deletion of topic {topic}: {error}; it continues when a broker"
                " becomes the controller, or when the topic is created again",
                topic=name,
                error=error.message,
                level="error",
            )

    async def _delete_marked_topic(self, name: str) -> None:
        # The operation that wrote the mark, or a creation of the same name, may have deleted it.
        if not self._is_marked(name):
            return
        known = self._context.get(name)
        if known is None:
            self._check_missing(name)
        if known is None or not self._defaults().delete_topic_enable:
            await self._unmark(name)
            self._report(
                "removed the mark to delete topic {topic}: {reason}",
                topic=name,
                reason="it does not exist" if known is None else "delete.topic.enable=false",
                level="warn",
            )
            return
        self._context.deleting.add(name)
        await self.delete(known.state)
        self._report("deleted topic {topic}, which was marked for deletion", topic=name)

    def _check_missing(self, name: str) -> None:
        """Raise KafkaStorageError if a topic exists that was not loaded, because it is damaged."""
        key: Key = ("topic", name)
        problem = self._store.problem(key)
        if problem is not None:
            raise KafkaStorageError(problem)
        if self._store.get(key)[1] != ABSENT:
            raise KafkaStorageError("the topic is offline")


def _ignore(_: None) -> None:
    """Do nothing: each deletion has reported its own outcome."""


def _raise(error: Exception) -> None:
    """Raise a bug, so that the reactor reports it."""
    raise error
