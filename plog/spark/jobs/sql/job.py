"""`run_sql`: run a query; each table that Spark does not find is a topic."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from plog.client.topic_reader import TopicReader
from plog.settings import ConfigError
from plog.spark.jobs.sql.sql_options import SqlOptions
from plog.spark.jobs.sql.table_names import check_case, topic_of
from plog.spark.jobs.sql.topic_sample import read_sample
from plog.spark.jobs.sql.topic_views import add_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"
_DESCRIBE: Final = re.compile(r"\s*(describe|desc)\b", re.IGNORECASE)
_TIME_ZONE: Final = "spark.sql.session.timeZone"
# Views have the names of their topics, so only one query of a process can have views at a time.
_views: Final = threading.Lock()


def run_sql(spark: SparkSession, options: SqlOptions) -> DataFrame:
    """Return the result of the query; Spark runs it when the rows are read.

    Raises ConfigError for a statement that is not a query, for an unknown topic or column, and for
    wrong syntax.
    """
    from pyspark.errors import AnalysisException, ParseException

    # Times are those of the options, unless the user has set another zone.
    if not spark.sparkContext.getConf().contains(_TIME_ZONE):
        spark.conf.set(_TIME_ZONE, "UTC")
    try:
        with _quiet_errors():
            check_query(spark, options.query)
            with _views:
                return _with_topics(spark, options)
    except (AnalysisException, ParseException) as error:
        raise ConfigError([f"cannot run the query: {_message(error)}"]) from None


def _with_topics(spark: SparkSession, options: SqlOptions) -> DataFrame:
    """Analyze the query until all of its tables are views of topics.

    Raises ConfigError for an unknown topic, and AnalysisException for other errors.
    """
    from pyspark.errors import AnalysisException

    added: list[str] = []
    with TopicReader(options.client) as cluster:
        topics = cluster.topics()
        try:
            # Spark reports one missing table at a time.
            while True:
                try:
                    return spark.sql(options.query)
                except AnalysisException as error:
                    relation = _missing_table(error)
                    if relation is None:
                        raise
                topic = _new_topic(relation, topics, added)
                check_case(topic, options.query, topics)
                reading = read_sample(cluster, topic, options.sample_size)
                add_view(spark, topic, reading, options)
                added.append(topic)
        finally:
            # The result does not need them, and the next query reads newer records.
            for topic in added:
                spark.catalog.dropTempView(topic)


@contextmanager
def _quiet_errors() -> Iterator[None]:
    """Keep pyspark from printing each error as JSON; it is raised, too."""
    logger = logging.getLogger("SQLQueryContextLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _new_topic(relation: str, topics: Collection[str], added: Collection[str]) -> str:
    """Return the topic that a table means. Raises ConfigError, also if it is a table already."""
    topic = topic_of(relation, topics)
    # Otherwise, Spark would not find it forever, for example in another catalog.
    if topic in added:
        raise ConfigError([f"cannot find the table {relation}: Spark does not find its view"])
    return topic


def _missing_table(error: Any) -> str | None:
    """Return the table that Spark does not find, or None for other errors."""
    if error.getCondition() != _MISSING:
        return None
    return str(error.getMessageParameters()["relationName"])


def check_query(spark: SparkSession, text: str) -> None:
    """Check that a statement only reads. Raises ConfigError, or ParseException for wrong syntax."""
    from pyspark.errors import ParseException

    if _DESCRIBE.match(text):
        return
    # There is no public parser.
    parser = spark._jsparkSession.sessionState().sqlParser()
    try:
        parser.parseQuery(text)
    except ParseException:
        # If this succeeds, the statement is a command.
        parser.parsePlan(text)
        raise ConfigError(
            ["cannot run the statement: it is not a query; use SELECT, WITH, VALUES or DESCRIBE"]
        ) from None


def _message(error: Exception) -> str:
    """Return Spark's message without the plan of the query.

    >>> _message(ValueError("no column `x`. SQLSTATE: 42703; line 1 pos 7;\\n'Project ['x]"))
    'no column `x`. SQLSTATE: 42703; line 1 pos 7'
    """
    return str(error).partition(";\n'")[0].strip()
