"""Commands of ours beside the caller's: in a session of their own, whatever session he has bound.

In a transaction servers list no collections and count none; its first command begins it, whoever sent that; and what is
read in one, or in a session of snapshot reads, may be of the past. A session that is passed goes before a bound one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from spatialnosql.one_moment import with_session
from spatialnosql.steps import Steps, call

T = TypeVar("T")


def in_own_session(client: Any, work: Callable[[Any], Steps[T]]) -> Steps[T]:
    """The work with a session that nobody else has, or with none where none is bound; it reads as commands do then."""
    if "session" not in with_session(client, {}):
        return (yield from work(None))  # not every deployment has sessions
    session = yield from call(client.start_session, causal_consistency=False)
    try:
        return (yield from work(session))
    finally:
        yield from call(session.end_session)
