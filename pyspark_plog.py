"""Registration of the data source ``plog``: Spark imports every module named ``pyspark_*``.

Spark takes the class `DefaultSource` from it. The source itself is `plog.spark.source`.
"""

from plog.spark.source import PlogSource as DefaultSource

__all__ = ["DefaultSource"]
