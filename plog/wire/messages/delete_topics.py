"""DeleteTopics (key 20): delete topics.

Changes by version:

  1  throttle time
  3  TOPIC_DELETION_DISABLED may be returned (KIP-322)
  4  flexible
  5  error message; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
  6  by name or by id (KIP-516)

Version 0 was removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, uuid


class DeleteTopicState(Struct):
    """A topic to delete, by name or by id."""

    name: str | None = field(default=None)
    topic_id: uuid = field()


class DeleteTopicsRequest(ApiMessage, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    """Topics to delete."""

    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[str] = field("0-5", ignorable=True)
    timeout_ms: int32 = field()


class DeletableTopicResult(Struct):
    """The result for one topic."""

    # Null if the request contains an id that is unknown.
    name: str | None = field(nullable="6+")
    topic_id: uuid = field("6+", ignorable=True)
    error_code: int16 = field()
    error_message: str | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(ApiMessage, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    """The result for each topic."""

    throttle_time_ms: int32 = field()
    responses: list[DeletableTopicResult] = field()
