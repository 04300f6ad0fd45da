"""`SpatialCollection` and `AsyncSpatialCollection`: a pymongo collection, with the same answers for less.

Reads are planned by `spatialnosql.rewrite` and sent; writes keep ``gh`` true by `spatialnosql.writes`; everything else
is the pymongo collection's own. Both classes are thin: what needs the server is written once, as steps.
"""

from __future__ import annotations

import datetime as dt
import inspect
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection
from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult

from spatialnosql.client_pipelines import pipeline_in_client
from spatialnosql.counting import can_settle, settled_count
from spatialnosql.cursor import AsyncSpatialCursor, SpatialCursor
from spatialnosql.deadline import Deadline
from spatialnosql.errors import UsageError
from spatialnosql.explain import Explanation, explain_count_steps, explain_steps
from spatialnosql.found import AsyncFound, Found
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import InfoCache
from spatialnosql.one_moment import wants_one_moment, with_session
from spatialnosql.planned_find import in_client, planned_steps, unchanged_reason
from spatialnosql.reading import can_settle_documents
from spatialnosql.rewrite import Context, Plan, QoS, rewrite, rewrite_pipeline
from spatialnosql.rewrite.bound_geo_near import pipeline_within_window
from spatialnosql.rewrite.bound_near import windows
from spatialnosql.rewrite.planning import plan_count
from spatialnosql.rewrite.sorted_by import wanted_of_sort
from spatialnosql.steps import Steps, call, listed, run, run_async
from spatialnosql.stk.finding import expand_pipeline, filters_of, pruned_pipeline, pruned_plan
from spatialnosql.stk.operator import OPERATOR, STK_PARTS, expand
from spatialnosql.writes import bulk_steps, find_one_and_steps, replace_steps, to_insert, update_steps

_caches: weakref.WeakKeyDictionary[Any, InfoCache] = weakref.WeakKeyDictionary()


class BaseCollection:
    """What both spatial collections share: steps, and what they are made of."""

    _kind: Any

    def __init__(
        self,
        collection: Any,
        *,
        qos: QoS | None = None,
        trust_gh: bool = False,
        info: CollectionInfo | None = None,
        filter_memory_mb: float | None = None,
    ) -> None:
        if not isinstance(collection, self._kind):
            raise UsageError(
                f"{type(self).__name__} takes a pymongo {self._kind.__name__}, not {collection!r:.80}"
            )
        self._collection = collection
        self._qos = qos or QoS()
        self._trust_gh = trust_gh
        self._info = info
        self._cache = _caches.setdefault(collection.database.client, InfoCache())
        if filter_memory_mb is not None:
            filters_of(collection).limit_bytes = int(filter_memory_mb * 1e6)

    __iter__ = None  # as pymongo's: items are other collections, not documents

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is not defined here: all the rest of a pymongo collection.
        if name == "_collection":
            raise AttributeError(name)  # while a copy is being made
        return getattr(self._collection, name)

    def __getitem__(self, name: str) -> Any:
        return self._collection[name]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Raise, as pymongo's does: there is no such method."""
        return self._collection(*arguments, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._collection!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseCollection) and self._collection == other._collection

    def __hash__(self) -> int:
        return hash(self._collection)

    def __bool__(self) -> bool:
        return bool(self._collection)  # raises, as pymongo's does

    def _wrapped(self, collection: Any, **changed: Any) -> Any:
        made: dict[str, Any] = {"qos": self._qos, "trust_gh": self._trust_gh, "info": self._info, **changed}
        return type(self)(collection, **made)

    def with_options(self, *arguments: Any, **options: Any) -> Any:
        """As pymongo's: the same collection with other options, spatial too."""
        return self._wrapped(self._collection.with_options(*arguments, **options))

    def with_qos(self, **wishes: Any) -> Any:
        """The same collection with other wishes: see `QoS`."""
        return self._wrapped(self._collection, qos=QoS(**wishes))

    # -- steps --------------------------------------------------------------------------------------------

    def _load_info(self) -> Steps[CollectionInfo]:
        if self._info is not None:
            return self._info
        return (yield from self._cache.info(self._collection, trust_gh=self._trust_gh))

    def forget(self) -> None:
        """Read statistics and metadata anew with the next query."""
        self._cache.forget(f"{self._collection.database.name}.{self._collection.name}")

    def _plan(self, filter: Any, options: Mapping[str, Any]) -> Steps[Plan]:
        info = yield from self._load_info()
        unchanged = unchanged_reason(options)
        if not isinstance(filter, Mapping):
            return Plan(filter, filter=filter, reasons=("the filter is no document",))
        if options.get("upsert"):
            unchanged = unchanged or "an upsert makes its document from the filter"
        # Whatever sorts here takes the first.
        wanted = wanted_of_sort(options.get("sort"), 1)
        return rewrite(expand(filter, info), info, qos=self._qos, wanted=wanted, unchanged=unchanged)

    def _plan_find(self, filter: Any, options: Mapping[str, Any]) -> Steps[Plan]:
        """The plan of a find: there the limit tells how many of the nearest are wanted."""
        info = yield from self._load_info()
        if not isinstance(filter, Mapping) or options.get("upsert"):
            return (yield from self._plan(filter, options))
        options = with_session(self._collection.database.client, options)
        return (yield from planned_steps(self._collection, info, self._qos, {**options, "filter": filter}))

    def _sent(self, plan: Plan, options: dict[str, Any], *, timed: str | None = None) -> dict[str, Any]:
        """Options with what the plan adds: the hint, and the time limit under the name that the method has for it."""
        sent = dict(options)
        if plan.hint:
            sent["hint"] = plan.hint
        if timed and self._qos.max_time_ms is not None:
            sent.setdefault(timed, self._qos.max_time_ms)
        return sent

    def _filtered(
        self,
        method: str,
        filter: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        timed: str | None = None,
    ) -> Steps[Any]:
        """Call a method whose first argument is a filter, with the filter rewritten."""
        plan = yield from self._plan(filter, options)
        sent = self._sent(plan, options, timed=timed)
        return (yield from call(getattr(self._collection, method), plan.filter, *arguments, **sent))

    def _count(self, filter: Any, options: dict[str, Any]) -> Steps[int]:
        """Settled in the client where that is cheaper, else asked of the server with the filter rewritten."""
        info = yield from self._load_info()
        options = with_session(self._collection.database.client, options)
        return (yield from self._count_plain(expand(filter, info), info, options))

    def _count_plain(self, filter: Any, info: CollectionInfo, options: dict[str, Any]) -> Steps[int]:
        options = self._sent(Plan(filter), options, timed="maxTimeMS")
        if not isinstance(filter, Mapping) or not can_settle(options):
            # One command sees one moment.
            options.pop("consistent", None)
            return int((yield from self._filtered("count_documents", filter, (), options)))
        if wants_one_moment(self._collection):
            options["consistent"] = True
        pruned = yield from self._pruned_count(filter, info, options)
        if pruned is not None:
            return pruned
        cut = {name: options[name] for name in ("limit", "skip") if name in options}
        plan = plan_count(filter, info, qos=self._qos, **cut)
        if plan.settled is not None:
            return (yield from settled_count(self._collection, plan, info, options))
        options.pop("consistent", None)
        sent = self._sent(plan, options)
        found = int((yield from call(self._collection.count_documents, plan.filter, **sent)))
        if plan.answered is not None and not options.keys() & {"skip", "limit"}:
            plan.answered.learn(info, found)
        return found

    def _pruned_count(self, filter: Any, info: CollectionInfo, options: dict[str, Any]) -> Steps[int | None]:
        """A count by filters of words: of so few that they are found, without their contents. None if it is no such."""
        if info.stk is None or options.get("consistent") or not can_settle_documents(self._collection):
            return None
        plan = yield from pruned_plan(self._collection, filter, info, self._qos, options.get("session"))
        if plan is None:
            return None
        given: dict[str, Any] = {"projection": {"_id": 1}, "max_time_ms": options.get("maxTimeMS")}
        given |= {name: options[name] for name in ("session", "comment", "skip", "limit") if name in options}
        return len((yield from in_client(self._collection, plan, info, given).taken(None)))

    def _distinct(self, key: str, filter: Any, options: dict[str, Any]) -> Steps[list[Any]]:
        if filter is None:
            values: list[Any] = yield from call(self._collection.distinct, key, **options)
            return values
        plan = yield from self._plan(filter, options)
        sent = self._sent(plan, options, timed="maxTimeMS")
        values = yield from call(self._collection.distinct, key, plan.filter, **sent)
        return values

    def _aggregate(self, pipeline: Any, options: dict[str, Any]) -> Steps[Any]:
        info = yield from self._load_info()
        options = with_session(self._collection.database.client, options)
        consistent = bool(options.pop("consistent", False)) or wants_one_moment(self._collection)
        unchanged = unchanged_reason(options)
        if not isinstance(pipeline, list) or not all(isinstance(s, Mapping) and s for s in pipeline):
            unchanged = "the pipeline is no list of stages"
        pipeline = expand_pipeline(pipeline, info)
        if unchanged is None:
            pruned = None
            if not consistent:
                pruned = yield from pruned_pipeline(self._collection, pipeline, info, self._qos, options)
            if pruned is not None:
                sent = self._sent(pruned, options, timed="maxTimeMS")
                return (yield from call(self._collection.aggregate, pruned.pipeline, **sent))
            found = yield from pipeline_in_client(
                self._collection, pipeline, info, self._qos, options, consistent=consistent
            )
            if found is not None:
                return found
        in_memory = options.get("allowDiskUse") is False
        plan = rewrite_pipeline(pipeline, info, qos=self._qos, in_memory=in_memory, unchanged=unchanged)
        sent = self._sent(plan, options, timed="maxTimeMS")
        if plan.near is not None:
            return (yield from self._aggregate_window(plan, Context(info, self._qos), sent))
        return (yield from call(self._collection.aggregate, plan.pipeline, **sent))

    def _aggregate_window(self, plan: Plan, context: Context, options: dict[str, Any]) -> Steps[Any]:
        """The nearest few: from the first window that holds enough of them, else by the pipeline as it is."""
        assert plan.near is not None
        wanted = _limit_of(plan.original)
        deadline = Deadline(options.get("maxTimeMS"))
        for radius in windows(plan.near):
            bounded = pipeline_within_window(plan.original, radius, context)
            documents = yield from listed(self._collection.aggregate, bounded, **_timed(options, deadline))
            if len(documents) >= wanted:
                return Found(documents)
        return (yield from call(self._collection.aggregate, plan.original, **_timed(options, deadline)))

    def _inserted(self, method: str, documents: Any, options: dict[str, Any], *, many: bool) -> Steps[Any]:
        info = yield from self._load_info()
        codec = self._collection.codec_options
        if info.adopted and not many:
            documents = to_insert(documents, info, codec)
        elif info.adopted and isinstance(documents, Iterable) and not isinstance(documents, Mapping):
            # An empty list stays one: pymongo has its own error for it.
            documents = [to_insert(document, info, codec) for document in documents]
        return (yield from call(getattr(self._collection, method), documents, **options))

    def _changed(
        self, method: str, filter: Any, change: Any, options: dict[str, Any], steps: Any, **how: Any
    ) -> Steps[Any]:
        """An update or a replacement: the filter rewritten, the change kept true by the steps given for it."""
        info = yield from self._load_info()
        plan = yield from self._plan(filter, options)
        sent = self._sent(plan, options)
        if not info.adopted:
            return (yield from call(getattr(self._collection, method), plan.filter, change, **sent))
        upsert = sent.pop("upsert", False)
        return (
            yield from steps(self._collection, plan.filter, change, info, upsert=upsert, options=sent, **how)
        )

    def _replaced(self, filter: Any, replacement: Any, options: dict[str, Any]) -> Steps[Any]:
        steps = self._changed(
            "find_one_and_replace", filter, replacement, options, find_one_and_steps, replace=True
        )
        return (yield from steps)

    def _bulk(self, requests: Any, options: dict[str, Any]) -> Steps[BulkWriteResult]:
        info = yield from self._load_info()
        if not info.adopted:
            result: BulkWriteResult = yield from call(self._collection.bulk_write, requests, **options)
            return result
        rest = dict(options)
        ordered = rest.pop("ordered", True)
        return (yield from bulk_steps(self._collection, requests, info, ordered=ordered, options=rest))

    def _explain(self, filter: Any, options: dict[str, Any]) -> Steps[Explanation]:
        info = yield from self._load_info()
        options = with_session(self._collection.database.client, options)
        if options.pop("count", False):
            return (yield from explain_count_steps(self._collection, filter, info, self._qos, options))
        return (yield from explain_steps(self._collection, filter, info, self._qos, options))


def _named(method: Any, taken: int, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Options that were given by position, by name: after the `taken` arguments of one of pymongo's methods."""
    if not arguments:
        return options
    names = list(inspect.signature(method).parameters)[1 + taken :]
    if len(arguments) > len(names):
        raise TypeError(
            f"{method.__name__}() takes {taken + len(names)} arguments, {taken + len(arguments)} given"
        )
    given = dict(zip(names, arguments, strict=False))
    if twice := given.keys() & options.keys():
        raise TypeError(f"{method.__name__}() got multiple values for argument {min(twice)!r}")
    return {**given, **options}


def _with_stk(filter: Mapping[str, Any] | None, *parts: Any) -> dict[str, Any]:
    """A filter with ``$stk`` beside its other conditions."""
    given = {name: part for name, part in zip(STK_PARTS, parts, strict=True) if part is not None}
    return {"$and": [filter, {OPERATOR: given}]} if filter else {OPERATOR: given}


def _limit_of(pipeline: Sequence[Mapping[str, Any]]) -> int:
    return int(min(stage["$limit"] for stage in pipeline if "$limit" in stage))


def _timed(options: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    left = deadline.remaining_ms()
    return options if left is None else {**options, "maxTimeMS": left}


class SpatialCollection(BaseCollection):
    """A pymongo `Collection` whose spatial queries touch fewer shards, keys and documents, and answer the same.

    `qos` says what the caller wants of time and ranges (`QoS`). `trust_gh` rewrites even where no validator guarantees
    that ``gh`` is true: documents with a wrong ``gh`` would be missed, and it is the caller's word that there are none.
    `info` replaces what would be read from the deployment's metadata. `filter_memory_mb` limits the filters of words
    that are kept in memory for this collection, by all who use the same client.
    """

    _kind = Collection

    def find(self, *arguments: Any, **options: Any) -> SpatialCursor:
        """As pymongo's; planned when the cursor is first read."""
        return SpatialCursor(self._collection, self._load_info, self._qos, arguments, options)

    def find_stk(
        self,
        region: Mapping[str, Any] | None,
        start: dt.datetime | None,
        end: dt.datetime | None,
        words: str | Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> SpatialCursor:
        """Documents in a region, of the interval ``[start, end)``, with such words.

        `region` is a GeoJSON geometry or what ``$geoWithin`` takes; `words` is an expression (``vaccine AND (clinic OR
        NOT covid)``) or a list of words that must all be there; None leaves a part out. `filter` adds other conditions,
        and `options` are those of `find`. ``{"$stk": {...}}`` in any filter means the same.
        """
        return self.find(_with_stk(filter, region, start, end, words), **options)

    def find_one(self, filter: Any = None, *arguments: Any, **options: Any) -> Any:
        """As pymongo's."""
        wanted = filter if filter is None or isinstance(filter, Mapping) else {"_id": filter}
        for document in self.find(wanted, *arguments, **options).limit(-1):
            return document
        return None

    def count_documents(self, filter: Mapping[str, Any], *arguments: Any, **options: Any) -> int:
        """As pymongo's; with ``consistent=True`` all commands that it takes read at one moment."""
        options = _named(self._kind.count_documents, 1, arguments, options)
        return run(self._count(filter, options))

    def distinct(
        self, key: str, filter: Mapping[str, Any] | None = None, *arguments: Any, **options: Any
    ) -> list[Any]:
        """As pymongo's."""
        options = _named(self._kind.distinct, 2, arguments, options)
        return run(self._distinct(key, filter, options))

    def aggregate(self, pipeline: Sequence[Mapping[str, Any]], *arguments: Any, **options: Any) -> Any:
        """As pymongo's; with ``consistent=True`` whatever commands it takes read at one moment."""
        options = _named(self._kind.aggregate, 1, arguments, options)
        return run(self._aggregate(pipeline, options))

    def insert_one(self, document: Any, *arguments: Any, **options: Any) -> InsertOneResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.insert_one, 1, arguments, options)
        result: InsertOneResult = run(self._inserted("insert_one", document, options, many=False))
        return result

    def insert_many(self, documents: Iterable[Any], *arguments: Any, **options: Any) -> InsertManyResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.insert_many, 1, arguments, options)
        result: InsertManyResult = run(self._inserted("insert_many", documents, options, many=True))
        return result

    def replace_one(self, filter: Any, replacement: Any, *arguments: Any, **options: Any) -> UpdateResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.replace_one, 2, arguments, options)
        result: UpdateResult = run(self._changed("replace_one", filter, replacement, options, replace_steps))
        return result

    def update_one(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> UpdateResult:
        """As pymongo's; an update that moves the point changes ``gh`` with it."""
        options = _named(self._kind.update_one, 2, arguments, options)
        result: UpdateResult = run(self._changed("update_one", filter, update, options, update_steps))
        return result

    def update_many(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> UpdateResult:
        """As pymongo's; an update that moves points is sent one document at a time, as MongoDB demands."""
        options = _named(self._kind.update_many, 2, arguments, options)
        result: UpdateResult = run(
            self._changed("update_many", filter, update, options, update_steps, many=True)
        )
        return result

    def delete_one(self, filter: Any, *arguments: Any, **options: Any) -> DeleteResult:
        """As pymongo's."""
        options = _named(self._kind.delete_one, 1, arguments, options)
        result: DeleteResult = run(self._filtered("delete_one", filter, (), options))
        return result

    def delete_many(self, filter: Any, *arguments: Any, **options: Any) -> DeleteResult:
        """As pymongo's."""
        options = _named(self._kind.delete_many, 1, arguments, options)
        result: DeleteResult = run(self._filtered("delete_many", filter, (), options))
        return result

    def find_one_and_delete(self, filter: Any, *arguments: Any, **options: Any) -> Any:
        """As pymongo's."""
        options = _named(self._kind.find_one_and_delete, 1, arguments, options)
        return run(self._filtered("find_one_and_delete", filter, (), options))

    def find_one_and_replace(self, filter: Any, replacement: Any, *arguments: Any, **options: Any) -> Any:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.find_one_and_replace, 2, arguments, options)
        return run(self._replaced(filter, replacement, options))

    def find_one_and_update(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> Any:
        """As pymongo's; an update that moves the point changes ``gh`` with it."""
        options = _named(self._kind.find_one_and_update, 2, arguments, options)
        return run(self._changed("find_one_and_update", filter, update, options, find_one_and_steps))

    def bulk_write(self, requests: Sequence[Any], *arguments: Any, **options: Any) -> BulkWriteResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.bulk_write, 1, arguments, options)
        return run(self._bulk(requests, options))

    def plan(self, filter: Mapping[str, Any], **options: Any) -> Plan:
        """What would be sent for a filter with the options of a find (or an update: ``upsert``), and why."""
        return run(self._plan_find(filter, options))

    def explain(self, filter: Any, **options: Any) -> Explanation:
        """Run a filter (or a pipeline) both ways and set side by side what the servers examined.

        With ``count=True`` the filter is a count's, else a find's, with whose options it may come.
        """
        return run(self._explain(filter, options))


class AsyncSpatialCollection(BaseCollection):
    """A pymongo `AsyncCollection`, as `SpatialCollection` is a `Collection`."""

    _kind = AsyncCollection

    def find(self, *arguments: Any, **options: Any) -> AsyncSpatialCursor:
        """As pymongo's; planned when the cursor is first read."""
        return AsyncSpatialCursor(self._collection, self._load_info, self._qos, arguments, options)

    def find_stk(
        self,
        region: Mapping[str, Any] | None,
        start: dt.datetime | None,
        end: dt.datetime | None,
        words: str | Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncSpatialCursor:
        """As `SpatialCollection.find_stk`."""
        return self.find(_with_stk(filter, region, start, end, words), **options)

    async def find_one(self, filter: Any = None, *arguments: Any, **options: Any) -> Any:
        """As pymongo's."""
        wanted = filter if filter is None or isinstance(filter, Mapping) else {"_id": filter}
        async for document in self.find(wanted, *arguments, **options).limit(-1):
            return document
        return None

    async def count_documents(self, filter: Mapping[str, Any], *arguments: Any, **options: Any) -> int:
        """As pymongo's; with ``consistent=True`` all commands that it takes read at one moment."""
        options = _named(self._kind.count_documents, 1, arguments, options)
        return await run_async(self._count(filter, options))

    async def distinct(self, key: str, filter: Any = None, *arguments: Any, **options: Any) -> list[Any]:
        """As pymongo's."""
        options = _named(self._kind.distinct, 2, arguments, options)
        return await run_async(self._distinct(key, filter, options))

    async def aggregate(self, pipeline: Sequence[Mapping[str, Any]], *arguments: Any, **options: Any) -> Any:
        """As pymongo's; with ``consistent=True`` whatever commands it takes read at one moment."""
        options = _named(self._kind.aggregate, 1, arguments, options)
        cursor = await run_async(self._aggregate(pipeline, options))
        return AsyncFound(cursor) if isinstance(cursor, Found) else cursor

    async def insert_one(self, document: Any, *arguments: Any, **options: Any) -> InsertOneResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.insert_one, 1, arguments, options)
        return await run_async(self._inserted("insert_one", document, options, many=False))

    async def insert_many(
        self, documents: Iterable[Any], *arguments: Any, **options: Any
    ) -> InsertManyResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.insert_many, 1, arguments, options)
        return await run_async(self._inserted("insert_many", documents, options, many=True))

    async def replace_one(
        self, filter: Any, replacement: Any, *arguments: Any, **options: Any
    ) -> UpdateResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.replace_one, 2, arguments, options)
        return await run_async(self._changed("replace_one", filter, replacement, options, replace_steps))

    async def update_one(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> UpdateResult:
        """As pymongo's; an update that moves the point changes ``gh`` with it."""
        options = _named(self._kind.update_one, 2, arguments, options)
        return await run_async(self._changed("update_one", filter, update, options, update_steps))

    async def update_many(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> UpdateResult:
        """As pymongo's; an update that moves points is sent one document at a time, as MongoDB demands."""
        options = _named(self._kind.update_many, 2, arguments, options)
        return await run_async(self._changed("update_many", filter, update, options, update_steps, many=True))

    async def delete_one(self, filter: Any, *arguments: Any, **options: Any) -> DeleteResult:
        """As pymongo's."""
        options = _named(self._kind.delete_one, 1, arguments, options)
        return await run_async(self._filtered("delete_one", filter, (), options))

    async def delete_many(self, filter: Any, *arguments: Any, **options: Any) -> DeleteResult:
        """As pymongo's."""
        options = _named(self._kind.delete_many, 1, arguments, options)
        return await run_async(self._filtered("delete_many", filter, (), options))

    async def find_one_and_delete(self, filter: Any, *arguments: Any, **options: Any) -> Any:
        """As pymongo's."""
        options = _named(self._kind.find_one_and_delete, 1, arguments, options)
        return await run_async(self._filtered("find_one_and_delete", filter, (), options))

    async def find_one_and_replace(
        self, filter: Any, replacement: Any, *arguments: Any, **options: Any
    ) -> Any:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.find_one_and_replace, 2, arguments, options)
        return await run_async(self._replaced(filter, replacement, options))

    async def find_one_and_update(self, filter: Any, update: Any, *arguments: Any, **options: Any) -> Any:
        """As pymongo's; an update that moves the point changes ``gh`` with it."""
        options = _named(self._kind.find_one_and_update, 2, arguments, options)
        return await run_async(
            self._changed("find_one_and_update", filter, update, options, find_one_and_steps)
        )

    async def bulk_write(self, requests: Sequence[Any], *arguments: Any, **options: Any) -> BulkWriteResult:
        """As pymongo's, with ``gh``."""
        options = _named(self._kind.bulk_write, 1, arguments, options)
        return await run_async(self._bulk(requests, options))

    async def plan(self, filter: Mapping[str, Any], **options: Any) -> Plan:
        """What would be sent for a filter with the options of a find (or an update: ``upsert``), and why."""
        return await run_async(self._plan_find(filter, options))

    async def explain(self, filter: Any, **options: Any) -> Explanation:
        """Run a filter (or a pipeline) both ways and set side by side what the servers examined.

        With ``count=True`` the filter is a count's, else a find's, with whose options it may come.
        """
        return await run_async(self._explain(filter, options))
