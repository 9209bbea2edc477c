"""The process of a job: ``python -m plog.cli.spark.job_process JOB [OPTION]...``.

``plog spark JOB`` becomes this process after it has checked the options, Java and the packages.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final

from plog.cli.main import STOPPED, describe
from plog.cli.parser import fail
from plog.cli.spark.jobs.job_table import JOBS, job_options, job_parser
from plog.error_base import PlogError

_OWN_ERROR: Final = re.compile(r"^plog\.[\w.]+Error: (.*)", re.MULTILINE)


def main(words: Sequence[str]) -> int:
    """Run a job and return the exit code."""
    name, *arguments = words
    job = JOBS[name]
    options = job_options(job_parser(name), job, arguments)
    # Imported here because the parser must work without pyspark.
    from pyspark.errors import PySparkException, StreamingQueryException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    # After the session, because SparkContext sets a handler of its own.
    _interrupt_quietly()
    try:
        return job.run(spark, options) or 0
    except (PlogError, OSError) as error:
        for line in describe(error).splitlines():
            fail(line)
        return job.failed
    except StreamingQueryException as error:
        fail(f"the query failed: {_reason(error)}")
        return job.failed
    except PySparkException as error:
        fail(f"the job failed: {_reason(error)}")
        return job.failed
    except KeyboardInterrupt:
        fail("stopped")
        return STOPPED
    finally:
        spark.stop()


def _interrupt_quietly() -> None:
    """Let SIGINT raise KeyboardInterrupt, without a traceback.

    Spark's own handler calls the JVM in the middle of another call to it, which fails.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # py4j logs the exception, or one that follows from it, before it raises it again.
    for name in (None, "py4j.clientserver"):
        logging.getLogger(name).addFilter(is_not_an_interrupt)


def is_not_an_interrupt(record: logging.LogRecord) -> bool:
    """Return False for a record whose exception is, or follows from, KeyboardInterrupt."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is None


def _reason(error: Exception) -> str:
    """Return the last of plog's own errors in Spark's message, or all of it.

    >>> _reason(ValueError("Traceback\\n  File x\\nplog.settings.ConfigError: no\\n at java"))
    'no'
    """
    own = _OWN_ERROR.findall(str(error))
    # Spark repeats the traceback of the worker in its own message, so the text of plog's error is
    # deep inside.
    return str(own[-1]) if own else str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
