"""Work against the server, written once for pymongo's two clients.

A function that needs the server is a generator: it yields a `Call` for each command and gets the answer back. `run`
drives it with an ordinary client, `run_async` with an asynchronous one; the generator cannot tell them apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One call of a pymongo method; with `listed`, the cursor it returns is read to its end."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    listed: bool = False


@dataclass(frozen=True)
class Together:
    """Calls at once, and work of our own while the servers are busy with them; the answer is the list of theirs."""

    calls: tuple[Call, ...]
    work: Callable[[], object] | None = None


Steps: TypeAlias = Generator[Call | Together, Any, T]


def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Steps[Any]:
    """Make one call and hand back its answer."""
    return (yield Call(function, arguments, options))


def listed(function: Callable[..., Any], *arguments: Any, **options: Any) -> Steps[list[Any]]:
    """Call a method that returns a cursor, and read all of it."""
    answer: list[Any] = yield Call(function, arguments, options, listed=True)
    return answer


def together(
    calls: list[Call], *, in_turn: bool = False, work: Callable[[], object] | None = None
) -> Steps[list[Any]]:
    """Make several calls side by side, or one after the other (in a session, which takes one at a time).

    `work` is done while the first of them are under way. What it raises is raised, unless a call has failed.
    """
    if work is None and (in_turn or len(calls) < 2):
        answers = []
        for one in calls:
            answers.append((yield one))
        return answers
    first, rest = (calls[:1], calls[1:]) if in_turn else (calls, [])
    both: list[Any] = yield Together(tuple(first), work)
    return [*both, *((yield from together(rest, in_turn=True)) if rest else ())]


def run(steps: Steps[T]) -> T:
    """Drive steps with an ordinary client."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            answer = _made_together(step) if isinstance(step, Together) else _made(step)
        except BaseException as error:
            # The steps decide what to do about it, as if they had called themselves: what they have begun in the
            # caller's session must end also when he interrupts them.
            failure = error


async def run_async(steps: Steps[T]) -> T:
    """Drive steps with an asynchronous client."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            if isinstance(step, Together):
                answer = await _made_together_async(step)
            else:
                answer = await _made_async(step)
        except GeneratorExit:
            raise  # thrown away together with its loop: there is nobody to await anything
        except BaseException as error:  # also when it is cancelled: the steps may call still, and are awaited
            failure = error


def _made(step: Call) -> Any:
    answer = step.function(*step.arguments, **step.options)
    return answer.to_list() if step.listed else answer


def _made_together(step: Together) -> list[Any]:
    # The first call is this thread's: it is soon waiting for the server, and then lets the others run.
    first, *rest = step.calls
    others = [_Beside(functools.partial(contextvars.copy_context().run, _made, one)) for one in rest]
    beside = others if step.work is None else [*others, _Beside(step.work)]
    try:
        answers = [_made(first)]
        for one in beside:
            one.make()
    except BaseException:
        # Whoever is told of it may close what another thread still reads from.
        for one in beside:
            one.drop()
        raise
    answers += [one.made.result() for one in others]
    for one in beside[len(others) :]:
        one.made.result()
    return answers


async def _made_together_async(step: Together) -> list[Any]:
    beside = None if step.work is None else _Beside(step.work)
    try:
        # When it is cancelled it cancels the calls, and waits for their end.
        found = await asyncio.gather(*map(_made_async, step.calls), return_exceptions=True)
        if beside is not None:
            beside.begin()
            # Shielded, for a future that is cancelled is never done.
            made = asyncio.shield(asyncio.wrap_future(beside.made))
            found += await asyncio.gather(made, return_exceptions=True)
    except BaseException:
        if beside is not None:
            beside.drop()
        raise
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found[: len(step.calls)]


class _Beside:
    """A function called once: by another thread, or by this one if it gets to it first.

    All threads may be busy, and none can be started while the interpreter shuts down or where there are too many.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._begun = threading.Lock()
        self.made: Future[Any] = Future()
        with contextlib.suppress(RuntimeError):
            _pool().submit(self.begin)

    def begin(self) -> None:
        """Call it, unless that was begun."""
        if self._begun.acquire(blocking=False):
            try:
                self.made.set_result(self._function())
            except BaseException as error:
                self.made.set_exception(error)

    def make(self) -> None:
        """See to it that it was called, whatever came of it."""
        self.begin()
        wait([self.made])

    def drop(self) -> None:
        """It need not be called any more; if that was begun, wait for its end."""
        if not self._begun.acquire(blocking=False):
            wait([self.made])


async def _made_async(step: Call) -> Any:
    answer = await _awaited(step.function(*step.arguments, **step.options))
    return await _awaited(answer.to_list()) if step.listed else answer


@functools.cache
def _pool() -> ThreadPoolExecutor:
    # Threads that wait for a server, not for a processor: a few for each caller that may be waiting.
    return ThreadPoolExecutor(max_workers=32, thread_name_prefix="spatialnosql")


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    # A process that was forked has none of these threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
