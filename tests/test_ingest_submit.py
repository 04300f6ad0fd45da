"""``spark-submit spark_jobs/ingest.py``: the file alone does what the command does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ingest_helpers import city, write_csv
from pymongo.database import Database
from spark_options import QUICK_JAVA

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.spark
def test_spark_submit_with_the_file_alone(
    cluster: Any, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "night.csv", city(500), ["1,,,,"])
    # A Python that has Spark but not this package: only the file's own place can lead to it, and workers have none.
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path = [p for p in sys.path if p != {str(ROOT)!r}]\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment["PYTHONPATH"] = str(tmp_path)
    command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", QUICK_JAVA, str(ROOT / "spark_jobs" / "ingest.py"), path]
    command += ["--into", f"{database.name}.trips", "--uri", cluster.uri, "--key", "number", "--json"]
    for written in (500, 0):  # the second time all is looked up, by workers
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert (found["written"], found["already_there"]) == (written, 500 - written)
        assert (found["rows"], found["quarantined"]) == (501, 1)
    assert database.trips.count_documents({}) == 500
