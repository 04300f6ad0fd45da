"""Several commands that read at one moment: in a transaction with the read concern "snapshot".

A snapshot session would do without its limits (60 seconds, the primaries), but does not keep its word: MongoDB 8.2
does not wait there for a move between shards that is being committed, and finds a document just under way on both
shards or on neither (about 1 count of 100 while points move). In a transaction it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pymongo import ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from spatialnosql.steps import Steps, call

T = TypeVar("T")

_TRIES = 5


def with_session(client: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the session that pymongo would take if none is given: the one bound by ``with session.bind()``."""
    if options.get("session") is None:
        bound = getattr(client, "_get_bound_session", lambda: None)()  # none before pymongo 4.17
        if bound is not None:
            return {**options, "session": bound}
    return dict(options)


def wants_one_moment(collection: Any) -> bool:
    """Whether the caller's read concern says that whatever is read is read at one moment."""
    return bool(collection.read_concern.level == "snapshot")


def has_one_moment(session: Any) -> bool:
    """Whether all commands of a session read at one moment anyway."""
    return session is not None and bool(session.in_transaction or session.options.snapshot)


def at_one_moment(client: Any, work: Callable[[Any], Steps[T]], session: Any = None) -> Steps[T]:
    """The work in a transaction; again if chunks moved or a server changed meanwhile, as transactions go.

    In a session of its own, or in the caller's, who may have made it to read what it has written.
    """
    if has_one_moment(session):
        return (yield from work(session))
    for tries_left in reversed(range(_TRIES)):
        used = session or (yield from call(client.start_session))
        try:
            yield from call(
                used.start_transaction, ReadConcern("snapshot"), read_preference=ReadPreference.PRIMARY
            )
            return (yield from work(used))
        except PyMongoError as error:
            if not tries_left or not error.has_error_label("TransientTransactionError"):
                raise
        finally:
            # Nothing was written, so there is nothing to commit. A session that ends aborts its transaction itself.
            if session is None:
                yield from call(used.end_session)
            elif used.in_transaction:
                yield from call(used.abort_transaction)
    raise AssertionError("the last try returns or raises")
