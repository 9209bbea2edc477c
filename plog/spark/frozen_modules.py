"""`freeze_modules`: exclude imported modules from the garbage collections of Spark's processes.

Spark reuses its Python processes: those of the driver for the steps of each query's plan, and those
of the executors for tasks. It collects garbage after each use. With the modules of pyspark, pyarrow
and plog, a collection takes 60 ms, as much as reading 150,000 records.
"""

from __future__ import annotations

import gc
import os
from itertools import count

_uses = count(1)


def freeze_modules() -> None:
    """Note a use of this process; in the second one, exclude all objects that exist.

    It does nothing in a process that Spark does not reuse.
    """
    # In the first use, modules are still imported.
    if "SPARK_REUSE_WORKER" in os.environ and next(_uses) == 2:
        gc.freeze()
