"""Calls side by side, and work of our own meanwhile: made once, whatever fails, and ended before anybody is told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from spatialnosql import steps as steps_of
from spatialnosql.steps import Call, Steps, call, run, run_async, together


def test_work_is_done_beside_calls_and_its_error_is_raised() -> None:
    done: list[str] = []

    def steps(*names: str, in_turn: bool, error: Exception | None = None) -> Steps[list[str]]:
        def work() -> None:
            done.append("work")
            if error is not None:
                raise error

        calls = [Call(str.upper, (name,)) for name in names]
        return (yield from together(calls, in_turn=in_turn, work=work))

    async def upper(name: str) -> str:
        await asyncio.sleep(0)
        return name.upper()

    def awaited(*names: str, in_turn: bool, error: Exception | None = None) -> Steps[list[str]]:
        def work() -> None:
            done.append("work")
            if error is not None:
                raise error

        return (yield from together([Call(upper, (name,)) for name in names], in_turn=in_turn, work=work))

    for names in (("a",), ("a", "b", "c")):
        for in_turn in (False, True):
            assert run(steps(*names, in_turn=in_turn)) == [name.upper() for name in names]
            assert asyncio.run(run_async(awaited(*names, in_turn=in_turn))) == [n.upper() for n in names]
    assert done == ["work"] * 8
    with pytest.raises(KeyError, match="wrong"):
        run(steps("a", in_turn=False, error=KeyError("wrong")))
    with pytest.raises(KeyError, match="wrong"):
        asyncio.run(run_async(awaited("a", in_turn=False, error=KeyError("wrong"))))


def test_of_two_errors_the_call_s_is_raised() -> None:
    def refuse() -> None:
        raise ValueError("work")

    def steps() -> Steps[list[Any]]:
        return (yield from together([Call(int, ("no number",))], work=refuse))

    async def fails() -> None:
        raise TypeError("the call")

    def awaited() -> Steps[list[Any]]:
        return (yield from together([Call(fails)], work=refuse))

    with pytest.raises(ValueError, match="no number"):
        run(steps())
    with pytest.raises(TypeError, match="the call"):
        asyncio.run(run_async(awaited()))


@pytest.mark.parametrize("fails", ["call", "work"])
def test_an_error_is_told_when_all_that_was_begun_has_ended(fails: str) -> None:
    """Who is told of it closes cursors, which must not be read from any more."""
    ended: list[str] = []

    def call(name: str, failing: bool) -> None:
        if failing:
            time.sleep(0.05)  # until the others have begun
            raise ValueError(name)
        time.sleep(0.2)
        ended.append(name)

    async def awaited(name: str, failing: bool) -> None:
        if failing:
            raise ValueError(name)
        await asyncio.sleep(0.2)
        ended.append(name)

    def steps(function: Any) -> Steps[list[Any]]:
        calls = [Call(function, (name, fails == name)) for name in ("call", "another")]
        return (yield from together(calls, work=lambda: call("work", fails == "work")))

    rest = sorted({"call", "another", "work"} - {fails})
    with pytest.raises(ValueError, match=fails):
        run(steps(call))
    assert sorted(ended) == rest
    ended.clear()
    with pytest.raises(ValueError, match=fails):
        asyncio.run(run_async(steps(awaited)))
    assert sorted(ended) == rest


def test_what_was_not_begun_when_a_call_fails_never_is(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Any] = []
    monkeypatch.setattr(steps_of._pool(), "submit", queued.append)
    made: list[str] = []

    def steps() -> Steps[list[Any]]:
        return (
            yield from together(
                [Call(int, ("no",)), Call(made.append, ("b",))], work=lambda: made.append("w")
            )
        )

    with pytest.raises(ValueError, match="no"):
        run(steps())
    for late in queued:
        late()
    assert (len(queued), made) == (2, [])


@pytest.mark.parametrize("refused", [False, True], ids=["all threads are busy", "no thread can be started"])
def test_where_no_thread_is_free_this_one_does_it_all_and_once(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[Any] = []

    def submit(function: Any) -> None:
        queued.append(function)  # as the pool's: queued first, and then there is no thread
        if refused:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(steps_of._pool(), "submit", submit)
    made: list[str] = []

    def steps() -> Steps[list[Any]]:
        calls = [Call(made.append, (name,)) for name in "ab"]
        return (yield from together(calls, work=lambda: made.append("work")))

    run(steps())
    assert made == ["a", "b", "work"]
    made.clear()

    async def slowly() -> None:
        made.append("a")

    def awaited() -> Steps[list[Any]]:
        return (yield from together([Call(slowly)], work=lambda: made.append("work")))

    asyncio.run(run_async(awaited()))
    assert made == ["a", "work"]
    for late in queued:
        late()
    assert made == ["a", "work"]


def test_an_interrupt_waits_for_what_was_begun() -> None:
    """Whoever catches it closes cursors, too."""
    ended: list[str] = []

    def interrupted() -> None:
        time.sleep(0.05)
        raise KeyboardInterrupt

    def slow() -> None:
        time.sleep(0.2)
        ended.append("slow")

    def steps() -> Steps[list[Any]]:
        return (yield from together([Call(interrupted), Call(slow)]))

    with pytest.raises(KeyboardInterrupt):
        run(steps())
    assert ended == ["slow"]


def test_who_is_interrupted_may_call_still() -> None:
    """A transaction that was begun must be aborted, whatever ends the work in it."""
    done: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def steps() -> Steps[None]:
        try:
            yield from call(interrupted)
        except Exception:
            done.append("an interrupt is no error")
        finally:
            yield from call(done.append, "ended")

    with pytest.raises(KeyboardInterrupt):
        run(steps())
    assert done == ["ended"]


@pytest.mark.parametrize("times", [1, 2])
def test_who_is_cancelled_may_call_still_until_it_is_cancelled_again(times: int) -> None:
    done: list[str] = []

    async def main() -> None:
        async def slow(name: str) -> None:
            done.append(name)
            if len(done) <= times:
                task.cancel()
            await asyncio.sleep(0)
            done.append(f"{name} ended")

        def steps() -> Steps[None]:
            try:
                yield from call(slow, "work")
            finally:
                try:
                    yield from call(slow, "abort")
                finally:
                    done.append("told")

        task = asyncio.ensure_future(run_async(steps()))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == (["work", "abort", "abort ended", "told"] if times == 1 else ["work", "abort", "told"])


def slow_work(done: list[str]) -> tuple[threading.Event, Callable[[], None]]:
    """Work that takes a while and then says that it is done, and what tells that it has begun."""
    begun = threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.2)
        done.append("work")

    return begun, work


def test_who_is_cancelled_is_told_when_all_that_was_begun_has_ended() -> None:
    """The next command in a session must not be sent while one is under way."""
    done: list[str] = []
    begun, work = slow_work(done)

    async def slow(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)  # as who closes a connection
            done.append(name)

    def steps() -> Steps[None]:
        try:
            yield from together([Call(slow, ("a",)), Call(slow, ("b",))], work=work)
        finally:
            yield from call(done.append, "ended")

    async def main() -> None:
        task = asyncio.ensure_future(run_async(steps()))
        for _ in range(5):
            await asyncio.sleep(0)
        begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(done[:3]) == ["a", "b", "work"]
    assert done[3:] == ["ended"]


def test_who_is_cancelled_while_only_work_is_left_waits_for_it() -> None:
    done: list[str] = []
    begun, work = slow_work(done)

    async def quick() -> None:
        begun.wait()

    def steps() -> Steps[None]:
        yield from together([Call(quick)], work=work)

    async def main() -> None:
        task = asyncio.ensure_future(run_async(steps()))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["work"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_thrown_away_with_its_loop_awaits_nothing_more() -> None:
    async def never() -> None:
        await asyncio.sleep(60)

    def steps() -> Steps[None]:
        try:
            yield from call(never)
        finally:
            yield from call(never)

    async def main() -> None:
        running = run_async(steps())
        running.send(None)
        running.close()  # raises if something is awaited

    asyncio.run(main())


def test_while_the_interpreter_ends_nothing_is_done_beside() -> None:
    """There are no new threads then, and pymongo answers all the same."""
    script = (
        "import atexit\n"
        "from spatialnosql.steps import Call, run, together\n"
        "def last():\n"
        "    print(run(together([Call(abs, (-1,)), Call(abs, (-2,))], work=lambda: print('work'))))\n"
        "atexit.register(last)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["work", "[1, 2]"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    def steps() -> Steps[list[Any]]:
        return (yield from together([Call(abs, (-1,)), Call(abs, (-2,))], work=lambda: None))

    assert run(steps()) == [1, 2]
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # rather killed than waiting for ever
        os._exit(0 if run(steps()) == [1, 2] else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
