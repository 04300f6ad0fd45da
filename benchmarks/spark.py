"""Spark for a benchmark: the session that is there, or one of its own."""

from __future__ import annotations

from typing import Any


def start_spark(name: str, **options: Any) -> tuple[Any, bool]:
    """A session, and whether it was started here: one that was there already is not ours to stop."""
    from pyspark import SparkContext

    from spark_jobs.session import build_session

    ours = SparkContext._active_spark_context is None
    return build_session(f"spatialnosql benchmark {name}", **options), ours
