"""The most similar items of each item, as a table and as records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.spark.jobs.recommend.recommend_options import SCORES, SimilarityOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def similar_items(items: DataFrame, pairs: DataFrame, options: SimilarityOptions) -> DataFrame:
    """Return a row for each similar item of an item, with its rank, counts and score.

    Equal scores are in the order of the counts, then of the items.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pairs = pairs.where(F.col("count") >= options.min_count).select("item", "other", "count")
    # Each pair is counted in one order, but both items need a row.
    swapped = pairs.selectExpr("other AS item", "item AS other", "count")
    scored = (
        pairs.unionByName(swapped)
        .join(items.selectExpr("item", "count AS item_count"), "item")
        .join(items.selectExpr("item AS other", "count AS other_count"), "other")
        .withColumn("score", F.expr(SCORES[options.score]))
    )
    order = Window.partitionBy("item").orderBy(F.desc("score"), F.desc("count"), "other")
    return (
        scored.withColumn("rank", F.row_number().over(order))
        .where(F.col("rank") <= options.top)
        .select("item", "rank", "other", "score", "count", "item_count", "other_count")
    )


def result_records(similar: DataFrame, changed: DataFrame) -> DataFrame:
    """Return a record for each item of `changed`, with JSON and the item as its key."""
    from pyspark.sql import functions as F

    # `collect_list` has no order. Structs are sorted by their first field, the rank.
    found = F.sort_array(F.collect_list(F.struct("rank", "other", "score", "count")))
    named = F.transform(
        found,
        lambda one: F.struct(
            one.getField("other").alias("item"), one.getField("score"), one.getField("count")
        ),
    )
    rows = similar.join(changed.select("item").distinct(), "item")
    rows = rows.groupBy("item").agg(named.alias("similar"))
    return rows.select(
        F.col("item").alias("key"), F.to_json(F.struct("item", "similar")).alias("value")
    )
