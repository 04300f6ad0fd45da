"""Work against the server, written once for pymongo's two clients.

A function that needs the server is a generator: it yields a `Call` for each command and gets the answer back. `run`
drives it with an ordinary client, `run_async` with an asynchronous one; the generator cannot tell them apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
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


Steps: TypeAlias = Generator[Call, Any, T]


def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Steps[Any]:
    """Make one call and hand back its answer."""
    return (yield Call(function, arguments, options))


def listed(function: Callable[..., Any], *arguments: Any, **options: Any) -> Steps[list[Any]]:
    """Call a method that returns a cursor, and read all of it."""
    answer: list[Any] = yield Call(function, arguments, options, listed=True)
    return answer


def run(steps: Steps[T]) -> T:
    """Drive steps with an ordinary client."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            answer = step.function(*step.arguments, **step.options)
            if step.listed:
                answer = answer.to_list()
        except Exception as error:  # the steps decide what to do about it, as if they had called themselves
            failure = error


async def run_async(steps: Steps[T]) -> T:
    """Drive steps with an asynchronous client."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            answer = await _awaited(step.function(*step.arguments, **step.options))
            if step.listed:
                answer = await _awaited(answer.to_list())
        except Exception as error:
            failure = error


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
