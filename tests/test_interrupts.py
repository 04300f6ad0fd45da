"""Counts at one moment that are interrupted or cancelled: the caller's session is his own again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from places import Documents, temporary_points
from pymongo import AsyncMongoClient, MongoClient
from pymongo.client_session import ClientSession
from pymongo.monitoring import CommandListener
from pymongo.read_concern import ReadConcern

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info
from spatialnosql.one_moment import at_one_moment
from spatialnosql.rewrite import QoS
from spatialnosql.steps import Steps, call, run, run_async

DATABASE = "test_interrupts"
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
COUNT = [{"$match": CIRCLE}, {"$count": "n"}]
SNAPSHOT = ReadConcern("snapshot")


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    with temporary_points(client, DATABASE) as collection:
        yield collection


@pytest.fixture(scope="module")
def info(plain: Documents) -> CollectionInfo:
    """As if there were many points: counts of them take several commands."""
    found = run(load_info(plain))
    assert found.histogram is not None
    many = Histogram(found.histogram.bits, found.histogram.cells, found.histogram.counts * 1_000)
    return replace(found, histogram=many)


class AtCommand(CommandListener):
    """Does something at a command of a transaction, by its number, and at the abort that follows."""

    def __init__(
        self, number: int, act: Callable[[], None], at_abort: Callable[[], None] | None = None
    ) -> None:
        self._number, self._act, self._at_abort = number, act, at_abort
        self.seen: list[str] = []

    def started(self, event: Any) -> None:
        if "autocommit" not in event.command:
            return
        self.seen.append(event.command_name)
        if event.command_name == "abortTransaction":
            if self._at_abort is not None:
                self._at_abort()
        elif len(self.seen) == self._number:
            self._act()

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


def interrupt() -> None:
    raise KeyboardInterrupt


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "consistent": lambda spatial, session: spatial.count_documents(CIRCLE, session=session, consistent=True),
    "read concern": lambda spatial, session: spatial.with_options(read_concern=SNAPSHOT).count_documents(
        CIRCLE, session=session
    ),
    "pipeline": lambda spatial, session: spatial.aggregate(COUNT, session=session, consistent=True),
    "bound": lambda spatial, _: spatial.count_documents(CIRCLE, consistent=True),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "bound" and not hasattr(ClientSession, "bind"):
        pytest.skip("this pymongo binds no sessions")
    return str(request.param)


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_leaves_the_session_to_its_owner(
    number: int, way: str, plain: Documents, info: CollectionInfo, cluster: Any
) -> None:
    listener = AtCommand(number, interrupt)
    with MongoClient[dict[str, Any]](cluster.uri, event_listeners=[listener]) as client:
        points = client[DATABASE]["points"]
        spatial = SpatialCollection(points, info=info, qos=QoS(form="client"))
        with client.start_session() as session:
            if way == "bound":
                with session.bind(end_session=False), pytest.raises(KeyboardInterrupt):
                    WAYS[way](spatial, session)
            else:
                with pytest.raises(KeyboardInterrupt):
                    WAYS[way](spatial, session)
            assert not session.in_transaction
            points.insert_one({"_id": "later"}, session=session)
    # Had it been written in a transaction of ours, nobody would have committed it.
    assert plain.delete_one({"_id": "later"}).deleted_count == 1
    assert len(listener.seen) == number + 1
    assert listener.seen[-1] == "abortTransaction"


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("number", [1, 2])
def test_so_does_who_cancels(
    number: int, twice: bool, way: str, plain: Documents, info: CollectionInfo, cluster: Any
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    def cancel() -> None:
        tasks[0].cancel()

    listener = AtCommand(number, cancel, cancel if twice else None)

    async def counted(spatial: Any, session: Any) -> Any:
        if way == "bound":
            async with session.bind(end_session=False):
                return await WAYS[way](spatial, session)
        return await WAYS[way](spatial, session)

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](cluster.uri, event_listeners=[listener]) as client:
            points = client[DATABASE]["points"]
            spatial = AsyncSpatialCollection(points, info=info, qos=QoS(form="client"))
            async with client.start_session() as session:
                tasks.append(asyncio.ensure_future(counted(spatial, session)))
                with pytest.raises(asyncio.CancelledError):
                    await tasks[0]
                assert not session.in_transaction
                await points.insert_one({"_id": "later"}, session=session)

    asyncio.run(main())
    assert plain.delete_one({"_id": "later"}).deleted_count == 1
    assert len(listener.seen) == number + 1
    assert listener.seen[-1] == "abortTransaction"


def test_time_that_is_up_is_a_cancellation(plain: Documents, info: CollectionInfo, cluster: Any) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as client:
            points = client[DATABASE]["points"]
            spatial = AsyncSpatialCollection(points, info=info, qos=QoS(form="client"))
            async with client.start_session() as session:
                for wait_s in (0.0, 0.001, 0.005, 0.02):
                    counting = spatial.count_documents(CIRCLE, session=session, consistent=True)
                    with contextlib.suppress(asyncio.TimeoutError):
                        assert await asyncio.wait_for(counting, wait_s) == expected
                    assert not session.in_transaction
                assert await spatial.count_documents(CIRCLE, session=session, consistent=True) == expected

    expected = plain.count_documents(CIRCLE)
    asyncio.run(main())


def test_a_session_of_its_own_is_ended(client: MongoClient[dict[str, Any]], cluster: Any) -> None:
    sessions: list[Any] = []

    def work(session: Any) -> Steps[None]:
        sessions.append(session)
        yield from call(session.client[DATABASE]["none"].count_documents, {}, session=session)
        yield from call(stop)

    stop: Callable[[], None] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(at_one_moment(client, work))

    async def main() -> None:
        nonlocal stop
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as other:
            task = asyncio.ensure_future(run_async(at_one_moment(other, work)))
            stop = lambda: asyncio.sleep(60) if task.cancel() else None  # noqa: E731
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert len(sessions) == 2
    assert all(session.has_ended for session in sessions)
