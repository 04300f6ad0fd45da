"""The index in a folder: kept up to date, read by workers from version to version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matching_world import RULES, brute_force, make_world
from pymongo.database import Database

from spatialnosql.cover import Ranges
from spatialnosql.errors import UsageError
from spatialnosql.geohash import points_to_cells
from spatialnosql.subscriptions import index_keeper
from spatialnosql.subscriptions.area_cover import area_ranges
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.index_keeper import IndexKeeper, IndexReader, Version, read_table
from spatialnosql.subscriptions.model import Subscription
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.table import Table

WORLD = make_world(5, 60, 400)


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Subscriptions:
    made = Subscriptions(database.alerts, RULES)
    made.add_many(WORLD.subscriptions[:40])
    return made


def matches(reader: IndexReader) -> set[tuple[str, Any]]:
    """What a worker finds."""
    import pyarrow as pa

    offsets, terms = reader.terms.read(pa.array([one.text for one in WORLD.objects]))
    rows, numbers = reader.index.match(
        [one.lng for one in WORLD.objects],
        [one.lat for one in WORLD.objects],
        [one.at_ms for one in WORLD.objects],
        offsets,
        terms,
    )
    found = [
        (
            reader.names.ids[number],
            reader.names.owners[int(reader.names.owner[number])],
            WORLD.objects[row].id,
        )
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
    ]
    owners = {one.id: one.owner for one in WORLD.subscriptions}
    assert all(owners[id_] == owner for id_, owner, _ in found)
    assert len(set(found)) == len(found)
    return {(id_, object_) for id_, _, object_ in found}


def expected(alerts: Subscriptions) -> set[tuple[str, Any]]:
    return brute_force(alerts.list(), WORLD.objects)


def test_a_worker_follows_from_version_to_version(
    alerts: Subscriptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = IndexKeeper(alerts, tmp_path / "index")
    follower = IndexReader(RULES)
    follower.bring_to(keeper.version)
    assert matches(follower) == expected(alerts)
    assert len(expected(alerts)) > 100
    steps = [
        lambda: alerts.add_many(WORLD.subscriptions[40:50]),
        lambda: alerts.remove([one.id for one in WORLD.subscriptions[5:15]]),
        lambda: alerts.add_many(WORLD.subscriptions[50:]),
        lambda: alerts.add_many(WORLD.subscriptions[5:10]),  # come back
    ]
    versions: list[Version] = []
    for step in steps:
        step()
        refreshed = keeper.refresh()
        assert refreshed
        assert not refreshed.rebuilt
        follower.bring_to(keeper.version)
        assert matches(follower) == expected(alerts)
        late = IndexReader(RULES)
        late.bring_to(keeper.version)
        assert matches(late) == expected(alerts)
        versions.append(keeper.version)
    assert len(set(versions)) == len(steps)
    assert not keeper.refresh()  # though it is told of the last minute again
    assert keeper.version == versions[-1]
    monkeypatch.setattr(index_keeper, "REBUILT_AT", 3)
    monkeypatch.setattr(index_keeper, "REBUILT_SHARE", 0.0)
    alerts.remove(WORLD.subscriptions[0].id)
    assert keeper.refresh().rebuilt
    assert keeper.version.base == versions[-1].base + 1
    follower.bring_to(keeper.version)
    assert matches(follower) == expected(alerts)
    assert len(keeper.index) == alerts.count()


def test_a_changed_subscription_takes_the_place_of_the_old_one(alerts: Subscriptions, tmp_path: Path) -> None:
    keeper = IndexKeeper(alerts, tmp_path)
    old = WORLD.subscriptions[0]
    alerts.add(old.owner, "music", [0, 0, 1, 1], id=old.id)
    assert (keeper.refresh().added, keeper.refresh().added) == (1, 0)
    reader = IndexReader(RULES)
    reader.bring_to(keeper.version)
    assert matches(reader) == expected(alerts)


def test_the_next_process_takes_up_what_is_there(alerts: Subscriptions, tmp_path: Path) -> None:
    before = IndexKeeper(alerts, tmp_path).version
    alerts.add_many(WORLD.subscriptions[40:])
    alerts.remove(WORLD.subscriptions[3].id)
    read = []
    keeper = IndexKeeper(alerts, tmp_path, read.append)
    assert read == []  # nothing was read anew
    assert keeper.version.base == before.base
    reader = IndexReader(RULES)
    reader.bring_to(keeper.version)
    assert matches(reader) == expected(alerts)


def test_a_folder_of_other_subscriptions_is_refused(
    alerts: Subscriptions, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    IndexKeeper(alerts, tmp_path)
    with pytest.raises(UsageError, match="holds the index of"):
        IndexKeeper(Subscriptions(database.others), tmp_path)


def test_a_folder_of_something_else_is_refused(alerts: Subscriptions, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not empty"):
        IndexKeeper(alerts, tmp_path)


def test_tables_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_keeper, "READ_AT_ONCE", 7)
    read: list[int] = []
    table = read_table(WORLD.subscriptions, read.append)
    assert read == [7] * 8 + [4]
    assert [table.subscription(row).area for row in range(60)] == [one.area for one in WORLD.subscriptions]
    assert len(read_table([])) == 0


def test_areas_cover_everything_that_matches() -> None:
    ranges = area_ranges(Index.build(Table.of(WORLD.subscriptions)))
    matched = {object_ for _, object_ in WORLD.expected()}
    objects = [one for one in WORLD.objects if one.id in matched]
    cells = points_to_cells(np.array([one.lng for one in objects]), np.array([one.lat for one in objects]))
    assert len(objects) > 50
    assert ranges.contains(np.asarray(cells)).all()
    elsewhere = points_to_cells(np.array([-70.0, 10.9]), np.array([-30.0, 57.0]))
    assert not ranges.contains(np.asarray(elsewhere)).any()


def box(*bounds: float) -> Subscription:
    return Subscription.of("ann", "flood", list(bounds), RULES)


@pytest.mark.parametrize(
    ("region", "inside", "outside"),
    [
        ([-180, -90, 180, 90], [(0, 0), (179.9, 89.9), (-180, -90), (180, 90)], []),
        ([179.95, 10, 180, 10.1], [(180, 10.05), (179.97, 10)], [(-179.9, 10.05), (179.7, 10.05)]),
        ([0.0, 0.0, 0.0, 0.0], [(0, 0)], [(1, 1), (-1, -1)]),
        ([180.0, 10.0, 200_000.0], [(179.5, 10), (-179.5, 10)], [(170, 10), (-170, 10)]),
        ([20.0, 89.5, 200_000.0], [(0, 89.9), (-160, 89.5), (100, 90)], [(20, 80)]),
    ],
)
def test_areas_at_the_ends_of_the_world(region: Any, inside: Any, outside: Any) -> None:
    ranges = area_ranges(Index.build(Table.of([box(*region)])))
    for points, expected_there in ((inside, True), (outside, False)):
        for lng, lat in points:
            cell = np.asarray(points_to_cells(np.array([lng], dtype=float), np.array([lat], dtype=float)))
            assert ranges.contains(cell)[0] == expected_there, (lng, lat)


def test_no_areas_are_no_ranges() -> None:
    index = Index.build(Table.of([box(0, 0, 1, 1)]))
    index.remove([0])
    assert len(area_ranges(index)) == 0
    assert isinstance(area_ranges(index), Ranges)
