"""What the jobs' files share under spark-submit: the same arguments as the command, errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pymongo.errors import PyMongoError
from pyspark.sql import SparkSession

from spark_jobs.session import LOCAL_MASTER, build_session, session_config
from spatialnosql.cli import explain
from spatialnosql.cluster.deployment import connect, describe
from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.uri import URI_VARIABLE, resolve_uri


def submitted(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
) -> int:
    """Run a job by the arguments of this process, and return its exit code."""
    parser = argparse.ArgumentParser(prog=name, description=(description or "").partition("\n")[0])
    add_arguments(parser)
    args = parser.parse_args()
    try:
        return run(args)
    except (SpatialNoSQLError, PyMongoError, OSError) as error:
        if args.debug:
            raise
        print(f"{name}: {explain(error)}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def opened(
    job: str, uri: str | None, args: argparse.Namespace, local_master: str = LOCAL_MASTER
) -> Iterator[tuple[Any, SparkSession, float]]:
    """A client of the deployment, if there is one; Spark, started or the one that is there; and how long that took."""
    with contextlib.ExitStack() as stack:
        client: Any = None
        if uri is not None:
            client = stack.enter_context(connect(uri))
            describe(client)  # says in words when nobody answers, before Spark is started
        started = time.monotonic()
        config = session_config(args)
        spark = build_session(
            job, master=args.master, mongo_uri=uri, config=config, local_master=local_master
        )
        yield client, spark, time.monotonic() - started


def required_uri(args: argparse.Namespace) -> str:
    """The deployment that a job cannot do without."""
    uri = resolve_uri(args.uri)
    if uri is None:
        raise UsageError(f"which MongoDB? Give --uri, or set {URI_VARIABLE}")
    return uri


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
