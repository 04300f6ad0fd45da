"""Spark sessions: local and quiet by default, the user's own cluster untouched.

Who wins, from strongest: ``config`` and the job's own options, what the user's Spark says (spark-submit's
options, spark-defaults.conf), our defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from spark_jobs.java import find_java
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.uri import redact

LOCAL_MASTER = "local[*]"
LOAD_MASTER = f"local[{2 * (os.cpu_count() or 1)}]"  # half of the tasks of a load wait for the server
MEMORY_SHARE = 0.25  # of the machine's: a local cluster and the page cache want the rest
MEMORY_MB = (1024, 8192)

# Ours: the connector takes its own settings from the start of the context only, or as options of each read.
_URI_KEY = "spark.spatialnosql.connection.uri"
_BATCH_KEY, _ROWS_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch", 1 << 16
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
# The JVM itself says this, once, before any logger is configured; Spark asks for that module.
_JVM_CHATTER = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options every job has: ``--master``, ``--driver-memory``, ``--spark-conf``."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", help=f"Spark master (default: spark-submit's, else {LOCAL_MASTER})")
    group.add_argument("--driver-memory", metavar="SIZE", help="memory of the driver, e.g. 4g")
    group.add_argument(
        "--spark-conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_key_and_value,
        help="any Spark setting; may be repeated",
    )


def session_config(args: argparse.Namespace) -> dict[str, str]:
    """The Spark settings among the arguments of `add_spark_arguments`."""
    config = dict(args.spark_conf)
    if args.driver_memory:
        config["spark.driver.memory"] = args.driver_memory
    return config


def build_session(
    app_name: str,
    *,
    master: str | None = None,
    mongo_uri: str | None = None,
    config: Mapping[str, str] | None = None,
    local_master: str = LOCAL_MASTER,
) -> SparkSession:
    """A session for a job; with a URI it has the MongoDB connector, and `mongo_reader` reads from there.

    `local_master` is what is started when neither the caller nor the user's Spark names a master.
    The URI is set in the running session, not at its start: a JVM's command line is there for all to read.
    """
    given = dict(config or {})
    if master:
        given["spark.master"] = master
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted or SparkContext._active_spark_context is not None:
        spark = _adopt(app_name, given)
    else:
        find_java()
        spark = _launch(app_name, given, local_master, connector=mongo_uri is not None)
    if mongo_uri is not None:
        _require_connector(spark)
        spark.conf.set(_URI_KEY, mongo_uri)
    return spark


def mongo_reader(spark: SparkSession, database: str, collection: str) -> DataFrameReader:
    """A reader of a collection of the deployment that the session was built for."""
    reader = spark.read.format("mongodb").option("connection.uri", str(spark.conf.get(_URI_KEY)))
    return reader.option("database", database).option("collection", collection)


def mongo_stream_reader(spark: SparkSession, database: str, collection: str) -> DataStreamReader:
    """A reader of the change stream of a collection of the deployment that the session was built for."""
    reader = spark.readStream.format("mongodb").option("connection.uri", str(spark.conf.get(_URI_KEY)))
    return reader.option("database", database).option("collection", collection)


def mongo_writer(rows: DataFrame, database: str, collection: str) -> DataFrameWriter:
    """A writer that appends to a collection of the deployment that the session was built for."""
    uri = str(rows.sparkSession.conf.get(_URI_KEY))
    writer = rows.write.format("mongodb").mode("append").option("connection.uri", uri)
    return writer.option("database", database).option("collection", collection)


@contextlib.contextmanager
def large_batches(spark: SparkSession) -> Iterator[None]:
    """Arrow batches long enough for numpy, while a job runs."""
    before = str(spark.conf.get(_BATCH_KEY))
    spark.conf.set(_BATCH_KEY, str(max(int(before), _ROWS_A_BATCH)))
    try:
        yield
    finally:
        spark.conf.set(_BATCH_KEY, before)


@contextlib.contextmanager
def spark_errors(*, debug: bool = False) -> Iterator[None]:
    """Turn Spark's errors, Java stack and all, into one line; with debug they pass as they are."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if debug:
            raise
        raise SpatialNoSQLError(f"Spark: {redact(first_line(error))}") from error


def first_line(error: Exception) -> str:
    """What went wrong, without the stack: of a Java error the innermost cause, which is the one that says."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    return text.strip().partition("\n")[0]


def _launch(app_name: str, given: Mapping[str, str], local_master: str, *, connector: bool) -> SparkSession:
    """Start a JVM with our defaults below the user's settings."""
    defaults_of_user = _spark_defaults()
    master = given.get("spark.master") or defaults_of_user.get("spark.master") or local_master
    local = master.startswith("local")
    _use_this_python(local=local)
    ours = _session_defaults() | _launch_defaults()
    if local:
        ours |= _local_defaults()
    settings = {key: value for key, value in ours.items() if key not in defaults_of_user}
    settings |= {"spark.app.name": app_name, "spark.master": master, **given}
    if connector and "mongo-spark-connector" not in _named_jars(settings | defaults_of_user):
        from spark_jobs.connector import connector_jars

        jars = [settings.get("spark.jars") or defaults_of_user.get("spark.jars") or "", *connector_jars()]
        settings["spark.jars"] = ",".join(str(jar) for jar in jars if jar)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _filtered_stderr() as stderr:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


@contextlib.contextmanager
def _filtered_stderr() -> Iterator[int]:
    """A file descriptor for a JVM's stderr: all it says is passed on as it comes, but for `_JVM_CHATTER`."""
    source, sink = os.pipe()
    # A copy of the real descriptor, not sys.stderr: progress is written without line ends.
    target = os.dup(2)

    def pass_on() -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(source, 65536):
                os.write(target, chunk.replace(_JVM_CHATTER, b""))

    threading.Thread(target=pass_on, name="spark-stderr", daemon=True).start()
    try:
        yield sink
    finally:
        os.close(sink)


def _adopt(app_name: str, given: Mapping[str, str]) -> SparkSession:
    """Use the JVM that spark-submit, or an earlier call, has started."""
    fresh = SparkContext._active_spark_context is None
    _use_this_python(local=False)
    SparkContext._ensure_initialized()
    set_by_user = dict(SparkConf().getAll())
    builder = SparkSession.builder.appName(app_name) if fresh else SparkSession.builder
    settings = {key: value for key, value in _session_defaults().items() if key not in set_by_user}
    for key, value in (settings | dict(given)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if fresh and "spark.log.level" not in set_by_user and not _has_own_logging():
        spark.sparkContext.setLogLevel("WARN")
    return spark


def _session_defaults() -> dict[str, str]:
    """What every job relies on, wherever it runs."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Settings, options and plans are shown in the UI, the event log and error messages.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|connection[.]uri",
        "spark.sql.redaction.options.regex": "(?i)url|uri|password",
    }


def _launch_defaults() -> dict[str, str]:
    """What a JVM we start ourselves is told: quiet, no web server, progress only where someone looks."""
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if not _has_own_logging():
        # "default" options come before the user's extraJavaOptions, so those still win.
        uri = _LOG_CONFIGURATION.as_uri()
        defaults["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={uri}"
    return defaults


def _local_defaults() -> dict[str, str]:
    """What a local master needs: memory for this machine, and nothing listening to the network."""
    return {
        "spark.driver.memory": f"{local_memory_mb(physical_memory_mb())}m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # 200 would be 200 tiny files a shuffle; adaptive execution joins small ones, it never splits these.
        "spark.sql.shuffle.partitions": str(max(8, 4 * (os.cpu_count() or 1))),
    }


def local_memory_mb(physical_mb: int) -> int:
    """The driver's share of a machine's memory, within bounds."""
    least, most = MEMORY_MB
    return max(least, min(most, int(physical_mb * MEMORY_SHARE)))


def physical_memory_mb() -> int:
    """The memory of this machine, or of the container if that has less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no cgroup v2, or "max"
        machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine // 2**20


def _use_this_python(*, local: bool) -> None:
    """Make the workers run the driver's own interpreter; on a cluster only if the user named none."""
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local or variable not in os.environ:
            os.environ[variable] = sys.executable


def _spark_conf_folder() -> Path | None:
    """The folder of the user's own Spark settings, if there is one."""
    given = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    return Path(given) if given else Path(home) / "conf" if home else None


def _spark_defaults() -> dict[str, str]:
    """The user's spark-defaults.conf: a key, white space or ``=``, a value."""
    folder = _spark_conf_folder()
    path = folder / "spark-defaults.conf" if folder else None
    if path is None or not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _has_own_logging() -> bool:
    folder = _spark_conf_folder()
    return folder is not None and (folder / "log4j2.properties").is_file()


def _named_jars(settings: Mapping[str, str]) -> str:
    return " ".join(settings.get(key, "") for key in ("spark.jars", "spark.jars.packages"))


def _require_connector(spark: SparkSession) -> None:
    """Give a running session the connector, unless it came with one (``--jars``, ``--packages``)."""
    from spark_jobs.connector import PROVIDER_CLASS, connector_jars

    jvm: Any = spark._jvm
    if jvm.org.apache.spark.util.Utils.classIsLoadable(PROVIDER_CLASS):
        return
    for jar in connector_jars():
        spark.sql(f"ADD JAR '{jar}'")


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form spark.KEY=VALUE")
    return key, value
