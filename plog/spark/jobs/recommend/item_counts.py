"""Baskets, and the numbers of baskets that contain an item or a pair of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.spark.jobs.event_columns import event_text, event_time
from plog.spark.jobs.recommend.recommend_options import RecommendOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME: Final = "__plog_time"


def window_items(events: DataFrame, options: RecommendOptions) -> DataFrame:
    """Return the columns ``window``, ``user`` and ``items``, an array without duplicates.

    Records without a user, an item or a time are in no basket.
    """
    from pyspark.sql import functions as F

    named = events.select(
        event_time(options.time).alias(_TIME),
        event_text(options.by).alias("user"),
        event_text(options.item).alias("item"),
    )
    named = named.where("user IS NOT NULL AND item IS NOT NULL")
    named = named.withWatermark(_TIME, options.watermark)
    window = F.window(_TIME, options.window).alias("window")
    # A set, because an item counts once per basket, however often the user has seen it.
    return named.groupBy(window, "user").agg(F.collect_set("item").alias("items"))


def baskets(rows: DataFrame, max_items: int) -> DataFrame:
    """Return the column ``items``: the sorted items of each basket, of which at most `max_items`.

    A larger basket is sampled. A repeated batch selects the same items.
    """
    from pyspark.sql import functions as F

    # Items with small hashes are selected, because a random selection would differ when a batch is
    # repeated. The hashes depend on user and window, so that no item is preferred everywhere.
    hashed = F.transform(
        "items", lambda item: F.struct(F.xxhash64(item, "user", "window.start"), item.alias("item"))
    )
    sample = F.slice(F.array_sort(hashed), 1, max_items).getField("item")
    items = F.when(F.size("items") > max_items, sample).otherwise(F.col("items"))
    # `pair_counts` needs the items of all baskets in the same order.
    return rows.select(F.array_sort(items).alias("items"))


def item_counts(rows: DataFrame) -> DataFrame:
    """Return the columns ``item`` and ``count`` of baskets."""
    from pyspark.sql import functions as F

    return rows.select(F.explode("items").alias("item")).groupBy("item").count()


def pair_counts(rows: DataFrame) -> DataFrame:
    """Return the columns ``item``, ``other`` and ``count`` of baskets, each pair in one order."""
    from pyspark.sql import functions as F

    placed = rows.select("items", F.posexplode("items").alias("place", "item"))
    # Places start with 0, and those of `slice` with 1. The items are sorted.
    rest = F.slice("items", F.col("place") + 2, F.size("items"))
    return placed.select("item", F.explode(rest).alias("other")).groupBy("item", "other").count()


def added_counts(before: DataFrame | None, new: DataFrame) -> DataFrame:
    """Return the sums of two tables of counts."""
    from pyspark.sql import functions as F

    if before is None:
        return new
    keys = [name for name in new.columns if name != "count"]
    return before.unionByName(new).groupBy(*keys).agg(F.sum("count").alias("count"))
