"""Cursors that decide how to ask when they are first read.

pymongo's cursors are configured by calls after ``find``: ``.limit(5)``, ``.hint(...)``, ``.sort(...)``. What to send
depends on them, so a spatial cursor collects them and makes its plan on the first read. Every call also goes to a
pymongo cursor of the original query, the *template*: it raises what pymongo raises, and it is what runs if nothing is
rewritten.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pymongo.cursor import Cursor
from pymongo.errors import InvalidOperation

from spatialnosql.deadline import Deadline
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.found import AsyncFound, Found
from spatialnosql.info import CollectionInfo
from spatialnosql.one_moment import with_session
from spatialnosql.planned_find import in_client, planned_steps
from spatialnosql.rewrite import Context, Plan, QoS
from spatialnosql.rewrite.bound_near import windows, within_window
from spatialnosql.rewrite.plan import Settled
from spatialnosql.steps import Steps, listed, run, run_async

_FIND_NAMES = tuple(inspect.signature(Cursor.__init__).parameters)[2:]  # behind self and the collection


class BaseCursor:
    """What the spatial cursors of both clients share."""

    def __init__(
        self,
        collection: Any,
        load_info: Callable[[], Steps[Any]],
        qos: QoS,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        self._template = collection.find(*arguments, **options)
        # The template has refused what is none of them, so that names can be given without further ado.
        self._options = {**dict(zip(_FIND_NAMES, arguments, strict=False)), **options}
        self._options.setdefault("filter", {})
        self._make = (collection, load_info, qos)
        self._collection, self._load_info, self._qos = collection, load_info, qos
        self._opaque: str | None = None  # a call whose effect on the plan we do not follow
        self._actual: Any = None
        self._plan: Plan | None = None
        self._learn: Callable[[], None] | None = None  # from the number of documents, once all were read

    # -- configuration ------------------------------------------------------------------------------------

    def _configure(self, method: str, *arguments: Any, **changed: Any) -> Any:
        self._check_unread()
        getattr(self._template, method)(*arguments)
        self._options.update(changed)
        return self

    def _check_unread(self) -> None:
        """Raise what pymongo raises when a cursor that was read is configured."""
        read = self._actual
        if read is not None and (read is not self._template or read.retrieved or read.cursor_id is not None):
            raise InvalidOperation("cannot set options after executing query")

    def limit(self, limit: int) -> Any:
        """As pymongo's."""
        return self._configure("limit", limit, limit=limit)

    def skip(self, skip: int) -> Any:
        """As pymongo's."""
        return self._configure("skip", skip, skip=skip)

    def batch_size(self, batch_size: int) -> Any:
        """As pymongo's."""
        return self._configure("batch_size", batch_size, batch_size=batch_size)

    def sort(self, key_or_list: Any, direction: Any = None) -> Any:
        """As pymongo's."""
        listed_ = key_or_list if direction is None else [(key_or_list, direction)]
        if isinstance(listed_, str):
            listed_ = [(listed_, 1)]
        arguments = (key_or_list,) if direction is None else (key_or_list, direction)
        return self._configure("sort", *arguments, sort=listed_)

    def hint(self, index: Any) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._configure("hint", index, hint=index)

    def collation(self, collation: Any) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._configure("collation", collation, collation=collation)

    def comment(self, comment: Any) -> Any:
        """As pymongo's."""
        return self._configure("comment", comment, comment=comment)

    def max_time_ms(self, max_time_ms: int | None) -> Any:
        """As pymongo's; all commands of a plan together."""
        return self._configure("max_time_ms", max_time_ms, max_time_ms=max_time_ms)

    def allow_disk_use(self, allow_disk_use: bool) -> Any:
        """As pymongo's."""
        return self._configure("allow_disk_use", allow_disk_use, allow_disk_use=allow_disk_use)

    def min(self, spec: Any) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._configure("min", spec, min=spec)

    def max(self, spec: Any) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._configure("max", spec, max=spec)

    def _opaquely(self, method: str, *arguments: Any) -> Any:
        self._opaque = self._opaque or f"the caller used {method}"
        return self._configure(method, *arguments)

    def where(self, code: Any) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._opaquely("where", code)

    def add_option(self, mask: int) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._opaquely("add_option", mask)

    def remove_option(self, mask: int) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._opaquely("remove_option", mask)

    def max_scan(self, max_scan: int | None) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._opaquely("max_scan", max_scan)

    def max_await_time_ms(self, max_await_time_ms: int | None) -> Any:
        """As pymongo's; the query then goes as it is."""
        return self._opaquely("max_await_time_ms", max_await_time_ms)

    # -- planning -----------------------------------------------------------------------------------------

    def _open(self, *, begun: bool = True) -> Steps[Any]:
        """The cursor to read from: made by the plan, on the first read. If not to be `begun`, it is only made."""
        if self._actual is None:
            info = yield from self._load_info()
            unchanged = self._opaque or _no_mapping(self._options["filter"])
            options = self._options_sent()
            self._plan = plan = yield from planned_steps(
                self._collection, info, self._qos, options, unchanged
            )
            if plan.settled is not None or plan.rings is not None:
                found = in_client(self._collection, plan, info, options)
                if plan.settled is not None and plan.settled.unread:
                    judged = self._begun_unread(found) if begun else self._judged(found, plan.settled)
                    self._actual = yield from judged
                else:
                    self._actual = found
            elif plan.near is not None:
                self._actual = yield from self._open_window(plan, Context(info, self._qos))
            elif plan.rewritten:
                hint = {"hint": plan.hint} if plan.hint else {}
                self._actual = self._collection.find(**{**options, "filter": plan.filter, **hint})
                self._learn = self._learning(plan, info)
            else:
                self._actual = self._template
                self._learn = self._learning(plan, info)
                if options.get("max_time_ms") != self._options.get("max_time_ms"):
                    self._template.max_time_ms(self._qos.max_time_ms)
        return self._actual

    def _judged(self, found: Found, settled: Settled) -> Steps[Any]:
        """What would be read, now that the shape is known."""
        try:
            _ = settled.region
        except SpatialNoSQLError:
            return self._template
        return found
        yield

    def _begun_unread(self, found: Found) -> Steps[Any]:
        """Read the first batch, and the shape meanwhile: only then it is known whether the shape is for us to judge."""
        try:
            yield from found.fill()
            return found
        except SpatialNoSQLError:
            yield from found.dropped()
            if found.deadline.remaining_ms() is not None:
                self._template.max_time_ms(found.deadline.remaining_ms())
            return self._template
        except Exception:
            yield from found.dropped()
            raise

    def _learning(self, plan: Plan, info: CollectionInfo) -> Callable[[], None] | None:
        answered, actual = plan.answered, self._actual
        if answered is None or self._options.get("limit") or self._options.get("skip"):
            return None
        return lambda: answered.learn(info, actual.retrieved)

    def _ended(self) -> None:
        """All documents were read."""
        learn, self._learn = self._learn, None
        if learn is not None:
            learn()

    def _options_sent(self) -> dict[str, Any]:
        options = with_session(self._collection.database.client, self._options)
        if self._qos.max_time_ms is not None and options.get("max_time_ms") is None:
            options["max_time_ms"] = self._qos.max_time_ms
        return options

    def _open_window(self, plan: Plan, context: Context) -> Steps[Any]:
        """The nearest few: from the first window that holds enough of them, else by the query as it is."""
        assert plan.near is not None
        options = self._options_sent()
        deadline = Deadline(options.get("max_time_ms"))
        wanted = abs(options["limit"])
        for radius in windows(plan.near):
            bounded = within_window(plan.original, radius, context)
            timed = {**options, "filter": bounded, "max_time_ms": deadline.remaining_ms()}
            documents = yield from listed(self._collection.find, **timed)
            if len(documents) >= wanted:
                return Found(documents)
        if deadline.remaining_ms() is not None:
            self._template.max_time_ms(deadline.remaining_ms())
        return self._template

    def _closing(self) -> Any:
        """The cursor to close; one that was never read is not going to be."""
        self._learn = None  # if it was read in part
        if self._actual is None:
            self._actual = self._template
        return self._actual

    def _fresh(self) -> Any:
        """A cursor configured as this one, not yet read."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._template = self._template.clone()
        twin._options = dict(self._options)
        twin._actual = twin._learn = None
        return twin

    def _in_one_command(self) -> Any:
        """An unread cursor of the same query that the servers answer alone."""
        twin = self._fresh()
        twin._qos = replace(self._qos, form="server")
        return twin

    def clone(self) -> Any:
        """As pymongo's: an unread cursor with the same options."""
        return self._fresh()

    def __copy__(self) -> Any:
        return self._fresh()

    def __deepcopy__(self, memo: Any) -> Any:
        twin = self._fresh()
        twin._options["filter"] = copy.deepcopy(self._options["filter"], memo)
        return twin

    def _slice(self, index: slice) -> Any:
        self._template[index]  # raises what pymongo raises
        skip = index.start or 0
        limit = 0 if index.stop is None else index.stop - skip
        self._options.update(skip=skip, limit=limit)
        if index.stop is not None and limit == 0:
            self._opaque = "an empty slice"
        return self

    # -- what it is doing ---------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan, once the cursor was read."""
        return self._plan

    @property
    def collection(self) -> Any:
        """The pymongo collection."""
        return self._collection

    @property
    def alive(self) -> bool:
        """As pymongo's."""
        return bool((self._actual or self._template).alive) if self._actual is not None else True

    @property
    def cursor_id(self) -> int | None:
        """As pymongo's."""
        return (self._actual if self._actual is not None else self._template).cursor_id  # type: ignore[no-any-return]

    @property
    def retrieved(self) -> int:
        """As pymongo's."""
        return int((self._actual if self._actual is not None else self._template).retrieved)

    @property
    def session(self) -> Any:
        """As pymongo's."""
        return self._template.session

    @property
    def address(self) -> tuple[str, int] | None:
        """As pymongo's."""
        return (self._actual if self._actual is not None else self._template).address  # type: ignore[no-any-return]


def _no_mapping(filter: Any) -> str | None:
    return None if filter is None or isinstance(filter, Mapping) else "the filter is no document"


class SpatialCursor(BaseCursor):
    """A cursor of `SpatialCollection.find`, used as pymongo's is."""

    def __iter__(self) -> Iterator[Any]:
        actual = None
        while actual is not self._actual or actual is None:  # anew if it is rewound meanwhile
            actual = run(self._open())
            for document in actual:
                yield document
                if self._actual is not actual:
                    break
            else:
                self._ended()

    def __next__(self) -> Any:
        actual = self._actual
        try:
            return (run(self._open()) if actual is None else actual).next()
        except StopIteration:
            self._ended()
            raise

    next = __next__

    def __enter__(self) -> SpatialCursor:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __getitem__(self, index: Any) -> Any:
        self._check_unread()
        if isinstance(index, slice):
            return self._slice(index)
        if not isinstance(index, int):
            raise TypeError(f"index {index!r} cannot be applied to Cursor instances")
        if index < 0:
            raise IndexError("Cursor instances do not support negative indices")
        single = self._fresh()
        single.skip(index + self._options.get("skip", 0)).limit(-1)
        for document in single:
            return document
        raise IndexError("no such item for Cursor instance")

    def to_list(self, length: int | None = None) -> list[Any]:
        """As pymongo's."""
        documents = list(run(self._open()).to_list(length))
        if length is None:
            self._ended()
        return documents

    def rewind(self) -> SpatialCursor:
        """As pymongo's: back to the beginning, to be asked anew."""
        self.close()
        self._template, self._actual = self._template.clone(), None
        return self

    def close(self) -> None:
        """As pymongo's."""
        self._closing().close()

    def explain(self) -> Any:
        """As pymongo's: the server's explanation of what is sent."""
        actual = run(self._fresh()._open(begun=False))
        if isinstance(actual, Found):
            return run(actual.explained()) or self._template.explain()
        return actual.explain()

    def distinct(self, key: str) -> list[Any]:
        """As pymongo's."""
        actual = run(self._in_one_command()._open())
        return list((self._template if isinstance(actual, Found) else actual).distinct(key))


class AsyncSpatialCursor(BaseCursor):
    """A cursor of `AsyncSpatialCollection.find`, used as pymongo's asynchronous one is."""

    def __aiter__(self) -> AsyncSpatialCursor:
        return self

    async def _opened(self) -> Any:
        if isinstance(self._actual, AsyncFound):
            return self._actual
        actual = await run_async(self._open())
        if isinstance(actual, Found):
            self._actual = actual = AsyncFound(actual)
        return actual

    async def __anext__(self) -> Any:
        try:
            return await (await self._opened()).next()
        except StopAsyncIteration:
            self._ended()
            raise

    next = __anext__

    async def __aenter__(self) -> AsyncSpatialCursor:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    def __getitem__(self, index: Any) -> Any:
        return self._template[index]  # raises: pymongo's asynchronous cursors have no items either

    async def to_list(self, length: int | None = None) -> list[Any]:
        """As pymongo's."""
        documents = list(await (await self._opened()).to_list(length))
        if length is None:
            self._ended()
        return documents

    async def rewind(self) -> AsyncSpatialCursor:
        """As pymongo's: back to the beginning, to be asked anew."""
        await self.close()
        self._template, self._actual = self._template.clone(), None
        return self

    async def close(self) -> None:
        """As pymongo's."""
        await self._closing().close()

    async def explain(self) -> Any:
        """As pymongo's: the server's explanation of what is sent."""
        actual = await run_async(self._fresh()._open(begun=False))
        if isinstance(actual, Found):
            return await run_async(actual.explained()) or await self._template.explain()
        return await actual.explain()

    async def distinct(self, key: str) -> list[Any]:
        """As pymongo's."""
        actual = await run_async(self._in_one_command()._open())
        return list(await (self._template if isinstance(actual, Found) else actual).distinct(key))
