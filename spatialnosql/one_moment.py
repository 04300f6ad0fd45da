"""Several commands that read at one moment: in a transaction with the read concern "snapshot".

A snapshot session would do without its limits (60 seconds, the primaries), but does not keep its word: MongoDB 8.2
does not wait there for a move between shards that is being committed, and finds a document just under way on both
shards or on neither (about 1 count of 100 while points move). In a transaction it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pymongo import ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from spatialnosql.steps import Steps, call

T = TypeVar("T")

_TRIES = 5


def at_one_moment(client: Any, work: Callable[[Any], Steps[T]]) -> Steps[T]:
    """The work in a session of its own; again if chunks moved or a server changed meanwhile, as transactions go."""
    for tries_left in reversed(range(_TRIES)):
        session = yield from call(client.start_session)
        try:
            yield from call(
                session.start_transaction, ReadConcern("snapshot"), read_preference=ReadPreference.PRIMARY
            )
            return (yield from work(session))
        except PyMongoError as error:
            if not tries_left or not error.has_error_label("TransientTransactionError"):
                raise
        finally:
            # Nothing was written: what is left of the transaction ends with the session.
            yield from call(session.end_session)
    raise AssertionError("the last try returns or raises")
