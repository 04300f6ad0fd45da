"""The simulator computes what it says from what was measured; and the benchmark keeps the contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from partition_samples import sample_of

from benchmarks import __main__ as command
from benchmarks import partitioning as benchmark
from spatialnosql.subscriptions.partitioning.partitioned_index import PartitionedIndex
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import Routes, merge_matches
from spatialnosql.subscriptions.partitioning.simulator import Measured, measure, simulate


def measured(match_s: list[float], dispatch_s: float, rows: list[list[int]], objects: int) -> Measured:
    zeros = np.zeros(len(match_s))
    counts = np.array([len(own) for own in rows])
    routes = Routes(
        np.array([row for own in rows for row in own], dtype=np.int64),
        np.concatenate([[0], np.cumsum(counts)]),
        0,
    )
    return Measured(
        objects, 0, dispatch_s, np.array(match_s), zeros, zeros, counts, counts, counts, 0, routes, 0
    )


def test_the_busiest_worker_or_the_dispatchers_limit() -> None:
    rows = [list(range(0, 1000, 2)), list(range(1, 1000, 2))]
    by_worker = simulate(measured([0.5, 0.25], 0.8, rows, 1000), dispatchers=2)
    assert by_worker.throughput == pytest.approx(2000)
    assert by_worker.limited_by == "workers"
    assert by_worker.imbalance == pytest.approx(0.5 / 0.375)
    by_dispatcher = simulate(measured([0.5, 0.25], 0.8, rows, 1000), dispatchers=1)
    assert by_dispatcher.throughput == pytest.approx(1250)
    assert by_dispatcher.limited_by == "dispatchers"


def test_latency_without_waiting_is_the_slowest_workers() -> None:
    rows = [list(range(1000)), list(range(1000))]
    slow = simulate(measured([1e-3 * 1000, 4e-3 * 1000], 0.5e-3 * 1000, rows, 1000), rate=0.01)
    assert slow.latency_us == pytest.approx(4500, rel=1e-3)
    busy = simulate(measured([1.0, 4.0], 0.5, rows, 1000), rate=225.0)
    assert busy.latency_us > 2 * slow.latency_us


def test_latency_of_one_server_is_that_of_theory() -> None:
    """M/D/1 at half load: the mean wait is half a service (Pollaczek and Khinchine)."""
    count = 200_000
    one = simulate(measured([1.0 * count], 1e-12, [list(range(count))], count), rate=0.5)
    assert one.latency_us / 1e6 == pytest.approx(1.5, rel=0.02)


def test_measuring_leaves_the_index_as_it_was() -> None:
    sample = sample_of(11)
    index = PartitionedIndex(make_plan("hybrid", sample, 3), sample.table.take(np.arange(200)))
    before = index.match_objects(sample.objects)
    taken = measure(index, sample.objects, sample.table.take(np.arange(200, 300)), repeats=2)
    after = index.match_objects(sample.objects)
    assert before[0].size > 0
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert taken.changes == 100
    assert (taken.insert_s > 0).any()
    assert taken.received.sum() == taken.routes.rows.size


def test_matches_of_several_partitions_are_distinct() -> None:
    parts = [(np.array([3, 1]), np.array([7, 2])), (np.array([1, 1]), np.array([2, 1]))]
    rows, numbers = merge_matches(parts)
    assert rows.tolist() == [1, 1, 3]
    assert numbers.tolist() == [1, 2, 7]
    assert merge_matches([])[0].size == 0


def test_the_benchmark_keeps_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "SCALES", (8, 16))
    monkeypatch.setattr(benchmark, "TOPIC_SCALES", (16, 256))
    arguments = ["partitioning", "--limit", "400", "--repeats", "1", "--json", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    # What Metis itself writes would come after the JSON.
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "partitioning"
    assert set(result["queries"]) == {"Q1", "Q2", "Q3"} == set(result["hybrid_vs_best_baseline"])
    assert set(result["salb_vs_hash"]) == {"16", "256"}
    for part in result["queries"].values():
        assert set(part["variants"]) == set(benchmark.VARIANTS)
        for figures in part["variants"].values():
            assert figures["equal"] is True
            assert figures["throughput"] > 0
    assert len(result["plots"]) == len(list(tmp_path.iterdir())) == 18
    assert "salb_vs_hash" in benchmark.table(result)


def test_the_benchmark_reads_texts(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.partitioning_data import read_texts
    from spatialnosql.errors import UsageError

    file = tmp_path / "texts.parquet"
    pq.write_table(
        pa.table(
            {
                "lon": [0.1, None, 0.3],
                "lat": [51.0, 51.0, 52.0],
                "location": ["High Street", "Low Street", None],
                "crime_type": ["Theft", "Theft", "Arson"],
            }
        ),
        file,
    )
    corpus = read_texts(file, 10, 1)
    assert corpus.lng.tolist() == [0.1, 0.3]
    own = [corpus.terms[a:b] for a, b in zip(corpus.offsets, corpus.offsets[1:], strict=False)]
    assert [sorted(corpus.vocabulary.term(int(t)) for t in terms) for terms in own] == [
        ["high", "street", "theft"],
        ["arson"],
    ]
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(UsageError, match="has the columns a"):
        read_texts(file, 10, 1)
