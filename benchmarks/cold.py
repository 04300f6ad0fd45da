"""The first query of a process: what a script that asks once pays, imports and connection aside.

Run as a program it is that process: it reads what to ask from stdin, asks, and prints what it took.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPEATS = 5
_KEYS = ("import_s", "first_s", "second_s", "client_cpu_s")


def cold_queries(
    uri: str, variants: Mapping[str, dict[str, Any]], *, repeats: int | None = None, reference: str = "plain"
) -> dict[str, Any]:
    """Medians for each variant: ``first_s`` the first query, ``second_s`` another, ``client_cpu_s`` the whole process.

    A variant is ``{"database", "collection", "spatial", "kind", "filters"}`` with two filters.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    names = list(variants)
    for run in range(repeats or REPEATS):
        for name in names if run % 2 == 0 else reversed(names):
            runs[name].append(_run({"uri": uri, **variants[name]}))
    result = {
        name: {key: round(statistics.median(one[key] for one in ran), 4) for key in _KEYS}
        for name, ran in runs.items()
    }
    answers = {json.dumps(one["answers"]) for ran in runs.values() for one in ran}
    base = result[reference]["first_s"]
    return {
        "variants": result,
        "ratio_wall": {name: round(base / max(one["first_s"], 1e-9), 3) for name, one in result.items()},
        "equal": len(answers) == 1,
    }


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cold"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise RuntimeError(f"the process that asks one query failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    started = time.perf_counter()
    from pymongo import MongoClient

    if asked["spatial"]:
        from spatialnosql import SpatialCollection
    imported = time.perf_counter()
    client: Any = MongoClient(asked["uri"])
    client.admin.command("ping")
    collection = client[asked["database"]][asked["collection"]]
    if asked["spatial"]:
        collection = SpatialCollection(collection)
    walls, answers = [], []
    for wanted in asked["filters"]:
        before = time.perf_counter()
        if asked["kind"] == "count":
            answers.append(collection.count_documents(wanted))
        else:
            answers.append(sum(1 for _ in collection.find(wanted)))
        walls.append(time.perf_counter() - before)
    taken = {"import_s": imported - started, "first_s": walls[0], "second_s": walls[1]}
    print(json.dumps({**taken, "client_cpu_s": time.process_time(), "answers": answers}))


if __name__ == "__main__":
    main()
