"""A durable publish-subscribe log that speaks Kafka's protocol: what an application imports.

Only names that live elsewhere are here: values, and the base of all errors.
"""

from plog.errors import ErrorCode, KafkaError, PlogError
from plog.records.codec import Record
from plog.types import TopicPartition

__all__ = ["ErrorCode", "KafkaError", "PlogError", "Record", "TopicPartition"]
