"""Compiled loops: numba as one decorator, so that the rest of the package need not know it.

The loops are compiled once a machine and kept in numba's cache; they run without the interpreter's lock.
No fast mathematics: a comparison says here what it says in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from spatialnosql.errors import UsageError

try:
    import numba
except ImportError as error:  # pragma: no cover - the tests' environment has it
    raise UsageError("matching needs numba: pip install 'spatialnosql[matching]'") from error

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """A function of arrays and numbers, compiled at its first call for the types it is called with."""
    try:
        return _compiled(loop, cache=True)
    except RuntimeError:  # nowhere to keep it: neither the package's folder nor the user's is writable
        return _compiled(loop, cache=False)


def _compiled(loop: Loop, cache: bool) -> Loop:
    ready: Any = numba.njit(cache=cache, nogil=True)(loop)
    return cast(Loop, ready)
