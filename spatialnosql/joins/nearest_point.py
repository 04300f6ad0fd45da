"""For each of many places the points nearest to it: nears by rings, several at a time, in the order of the places."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.geometry import geojson_point, legacy_point
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.nearest import checked_distance
from spatialnosql.joins.points import checked_filter
from spatialnosql.joins.scan import Reading, needed_of
from spatialnosql.one_moment import with_session
from spatialnosql.places import places as places_of
from spatialnosql.places import value_at
from spatialnosql.sphere import distances_m
from spatialnosql.steps import run

_SIDE_BY_SIDE = 4
_OPTIONS = ("session", "comment", "max_time_ms")
_DISTANCE = "spatialnosql distance"  # no field of anybody's


class Measured(NamedTuple):
    """A document and how far it is."""

    document: Any
    distance_m: float


class Around(NamedTuple):
    """A place, as it was given, and the documents nearest to it, nearest first."""

    place: Any
    nearest: tuple[Measured, ...]


def nearest_point(
    points: Any,
    places: Iterable[Any],
    within_m: float | None = None,
    *,
    k: int = 1,
    filter: Mapping[str, Any] | None = None,
    projection: Any = None,
    location: str | None = None,
    **options: Any,
) -> AroundCursor:
    """An iterator of `Around`: for each place its `k` nearest points, or as many as lie `within_m` metres.

    Places are ``[lng, lat]``, GeoJSON points or features, or documents with a location (in the field `location`, else
    in the field that the points have it in), and are taken as they are needed. Some are asked for at the same time,
    each as of its own moment; in a ``session`` one after the other. Options are ``session``, ``comment`` and
    ``max_time_ms`` (of each place).

    >>> for place, nearest in nearest_point(stations, [[2.35, 48.86], [2.29, 48.87]], 1_000, k=3):
    ...     print(place, [(station["name"], round(metres)) for station, metres in nearest])
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UsageError(f"k is {k!r}; it must be a number of points, 1 or more")
    if isinstance(places, Mapping | str) or not isinstance(places, Iterable):
        raise UsageError(f"places are given as a list, or any iterable, not as {places!r:.60}")
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"there is no option {name!r}; there are {', '.join(_OPTIONS)}")
    spatial = SpatialCollection(points) if isinstance(points, Collection) else points
    if not isinstance(spatial, SpatialCollection):
        raise UsageError(f"points are a SpatialCollection or a pymongo Collection, not {points!r:.60}")
    info: CollectionInfo = run(spatial._load_info())
    if not info.adopted:
        raise UsageError(
            f"{info.namespace} was never adopted, so where its points are is not known; "
            f"`spatialnosql adopt {info.namespace}`"
        )
    options = with_session(spatial.database.client, options)
    reach = None if within_m is None else checked_distance(within_m)
    asked = _Asked(spatial, info, reach, k, checked_filter(filter), projection, options)
    path = (location or info.location).split(".")
    return AroundCursor(
        enumerate(places),
        lambda numbered: asked.around(numbered[1], *_place(numbered[0], numbered[1], path)),
        1 if options.get("session") is not None else _SIDE_BY_SIDE,
    )


class AroundCursor:
    """Answers for items of an iterator, in their order, some of them made ahead in threads."""

    def __init__(self, items: Iterator[Any], answer: Callable[[Any], Around], side_by_side: int) -> None:
        self._items, self._answer, self._most = items, answer, side_by_side
        self._ahead: deque[Future[Around]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def __iter__(self) -> AroundCursor:
        return self

    def __next__(self) -> Around:
        if self._most == 1:
            return self._answer(next(self._items))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="spatialnosql-near")
        while len(self._ahead) < self._most:
            try:
                item = next(self._items)
            except StopIteration:
                break
            self._ahead.append(self._pool.submit(self._answer, item))
        if not self._ahead:
            self.close()
            raise StopIteration
        return self._ahead.popleft().result()

    def __enter__(self) -> AroundCursor:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ask no more; what is under way is waited for."""
        self._items = iter(())
        self._ahead.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class _Asked:
    """What is asked of the points for every place."""

    def __init__(
        self,
        spatial: SpatialCollection,
        info: CollectionInfo,
        within_m: float | None,
        k: int,
        filter: Mapping[str, Any],
        projection: Any,
        options: dict[str, Any],
    ) -> None:
        self._info, self._within_m, self._k, self._filter, self._options = info, within_m, k, filter, options
        more = (_DISTANCE,) if info.unhashed else ()
        self._reading = Reading.of(spatial, needed_of(projection, info, place=True, more=more))
        self._spatial = spatial._wrapped(self._reading.collection)

    def around(self, place: Any, lng: float, lat: float) -> Around:
        """A place with its nearest points."""
        point = {"type": "Point", "coordinates": [lng, lat]}
        documents, distances = self._by_server(point) if self._info.unhashed else self._by_find(point)
        given = self._reading.given_back(documents)
        return Around(place, tuple(Measured(*pair) for pair in zip(given, distances, strict=True)))

    def _by_find(self, point: dict[str, Any]) -> tuple[list[Any], list[float]]:
        bound = {} if self._within_m is None else {"$maxDistance": self._within_m}
        asked: dict[str, Any] = {self._info.location: {"$nearSphere": {"$geometry": point, **bound}}}
        if self._filter:
            asked["$and"] = [self._filter]
        found = self._spatial.find(asked, self._reading.widened.projection, **self._options)
        documents: list[Any] = found.limit(self._k).to_list()
        if not documents:
            return [], []
        own_lng, own_lat = point["coordinates"]
        distances = distances_m(own_lng, own_lat, *places_of(documents, self._info.location))
        return documents, distances.tolist()

    def _by_server(self, point: dict[str, Any]) -> tuple[list[Any], list[float]]:
        """Where documents may be more than points only the server can measure them."""
        stage: dict[str, Any] = {"near": point, "distanceField": _DISTANCE, "key": self._info.location}
        if self._within_m is not None:
            stage["maxDistance"] = self._within_m
        if self._filter:
            stage["query"] = self._filter
        pipeline: list[dict[str, Any]] = [{"$geoNear": stage}, {"$limit": self._k}]
        if self._reading.widened.projection is not None:
            pipeline.append({"$project": self._reading.widened.projection})
        options = dict(self._options)
        if "max_time_ms" in options:
            options["maxTimeMS"] = options.pop("max_time_ms")
        documents = list(self._spatial.aggregate(pipeline, **options))
        return documents, [document.pop(_DISTANCE) for document in documents]


def _place(number: int, given: Any, path: list[str]) -> tuple[float, float]:
    """Longitude and latitude of a place, however it was given."""
    value = given
    try:
        if isinstance(given, Mapping) and given.get("type") == "Feature":
            value = given["geometry"]
        elif isinstance(given, Mapping) and "coordinates" not in given:
            value = value_at(given, path)
        if isinstance(value, Mapping) and "coordinates" in value:
            return geojson_point(value)
        return legacy_point(value if isinstance(value, Mapping | list) else list(value))
    except (SpatialNoSQLError, KeyError, TypeError) as error:
        raise UsageError(
            f"place {number} is {given!r:.60}; it must be [lng, lat], a GeoJSON point, or a document with one "
            f"in {'.'.join(path)!r} ({error})"
        ) from None
