"""The filters in memory: those used last, under a limit; and the global filter, which says which of them exist.

What is evicted is simply forgotten: all of it is on the server, and is loaded again when it is asked for. The global
filter is the sorted list of all filter cubes, 8 bytes each, so it is exact; a cube that is not in it holds no
documents, and the server is not asked about it (the paper's section 5.3).
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spatialnosql.steps import Steps
from spatialnosql.stk.filter_store import State, read_directories, read_filters, read_state
from spatialnosql.stk.keys import Keys
from spatialnosql.stk.settings import Ints

DEFAULT_MEMORY_MB = 256
_OVERHEAD = 200  # bytes that a filter takes beside its keys
_AT_ONCE = 2_000  # filters that are loaded in one command


@dataclass
class Counters:
    """What the cache did, for those who want to see it."""

    hits: int = 0
    loads: int = 0
    commands: int = 0
    evictions: int = 0
    absent: int = 0  # cubes that the global filter knew not to exist


@dataclass(frozen=True)
class Fresh:
    """The state of the filters, and when it was read."""

    state: State
    read_s: float


def now_s() -> float:
    """A clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class FilterCache:
    """The filters of one collection, for any number of threads."""

    def __init__(self, memory_mb: float = DEFAULT_MEMORY_MB) -> None:
        self.limit_bytes = int(memory_mb * 1e6)
        self.use_filters = self.use_global = self.use_shut = True  # without: to measure what they are worth
        self.counters = Counters()
        self._lock = threading.Lock()
        self._state: State | None = None
        self._read_s = -math.inf  # when the state was read
        self._seen: set[Any] = set()  # publications
        self._cubes: Ints = np.zeros(0, dtype=np.int64)
        self._kept: OrderedDict[int, Keys] = OrderedDict()
        self._bytes = 0

    @property
    def used_bytes(self) -> int:
        """Memory of the filters that are kept, and of the global one."""
        return self._bytes + self._cubes.nbytes

    @property
    def cubes(self) -> Ints:
        """The global filter: all filter cubes, ascending."""
        return self._cubes

    def refresh(self, collection: Any, settings: str) -> Steps[Fresh | None]:
        """Learn what was published; None if there are no filters in force for these settings.

        Nothing that was published is used before a grace is over, so what was read in the first half of it will do.
        """
        with self._lock:
            known, read_s = self._state, self._read_s
        if known is not None and now_s() - read_s < known.grace_s / 2 and known.settings == settings:
            return Fresh(known, read_s)
        read_s = now_s()
        state = yield from self._read(collection, settings, read_s)
        return None if state is None else Fresh(state, read_s)

    def _read(self, collection: Any, settings: str, read_s: float) -> Steps[State | None]:
        state = yield from read_state(collection)
        if state is None or state.paused or state.settings != settings:
            self._read_s = -math.inf
            return None
        with self._lock:
            known, seen = self._state, set(self._seen)
        if known == state:
            self._read_s = read_s
            return state
        anew = known is None or known.filters != state.filters
        found = yield from read_directories(collection, state.filters, () if anew else seen)
        changed = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found.values()]))
        with self._lock:
            if self._state is not None and self._state.filters == state.filters:
                self._forget(changed.tolist())
                self._cubes = np.union1d(self._cubes, changed)
                self._seen.update(found)
                tick = max(state.tick, self._state.tick)
            elif self._state is known:
                self._forget(list(self._kept))
                self._cubes, self._seen, tick = changed, set(found), state.tick
            else:
                return state  # another thread went over to a newer set, with its directories
            self._state, self._read_s = replace(state, tick=tick), read_s
        return state

    def filters(self, collection: Any, cubes: Ints) -> Steps[dict[int, Keys | None]]:
        """The filters of those cubes that exist; None for one that should, but could not be found."""
        with self._lock:
            state, known = self._state, self._cubes
            assert state is not None, "refresh comes first"
        wanted = cubes.tolist()
        if self.use_global:
            at = np.minimum(known.searchsorted(cubes), max(len(known) - 1, 0))
            wanted = cubes[known[at] == cubes].tolist() if len(known) else []
            self.counters.absent += len(cubes) - len(wanted)
        found, missing = self._held(wanted)
        answer: dict[int, Keys | None] = dict(found)
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            loaded = yield from read_filters(collection, state.filters, some)
            self.counters.commands += 1
            self.counters.loads += len(loaded)
            with self._lock:
                # What was published since then would be missing from these.
                if self._state == state:
                    self._keep(loaded)
            answer.update(loaded)
        in_set = set(known.tolist()) if missing and not self.use_global else None
        for cube in missing:
            if cube not in answer and (in_set is None or cube in in_set):
                answer[cube] = None
        return answer

    def _held(self, wanted: list[int]) -> tuple[dict[int, Keys], list[int]]:
        with self._lock:
            found = {cube: self._kept[cube] for cube in wanted if cube in self._kept}
            for cube in found:
                self._kept.move_to_end(cube)
            self.counters.hits += len(found)
        return found, [cube for cube in wanted if cube not in found]

    def _keep(self, loaded: dict[int, Keys]) -> None:
        for cube, keys in loaded.items():
            if cube not in self._kept:
                self._kept[cube] = keys
                self._bytes += keys.nbytes + _OVERHEAD
        while self._bytes > self.limit_bytes and self._kept:
            _, keys = self._kept.popitem(last=False)
            self._bytes -= keys.nbytes + _OVERHEAD
            self.counters.evictions += 1

    def _forget(self, cubes: Iterable[int]) -> None:
        for cube in cubes:
            keys = self._kept.pop(cube, None)
            if keys is not None:
                self._bytes -= keys.nbytes + _OVERHEAD
