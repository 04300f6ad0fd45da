"""Ingest into a collection that is shut (`spatialnosql.stk.shutting`): opened where it must be, and shut again."""

from __future__ import annotations

import sys

from spark_jobs.ingest_work import Work
from spatialnosql.metadata import load_info
from spatialnosql.steps import run
from spatialnosql.stk.filter_store import read_state
from spatialnosql.stk.shutting import reopen_for, shut_again


def open_for(work: Work, batch: str) -> None:
    """Documents of any time may come fresh, or be so for a while: not where it is shut."""
    collection = work.collection
    state = run(read_state(collection))
    if state is None or (state.shut_ms is None and run(load_info(collection)).shut_ms is None):
        return
    print(f"opening what is shut, in {state.grace_s:g} s ...", file=sys.stderr, flush=True)
    reopen_for(collection, f"ingest of batch {batch}")


def shut_at_last(work: Work) -> None:
    """Shut again what was opened for this batch, or for one that did not come to its end."""
    info = run(load_info(work.collection))
    why_not = None if info.stk is None else shut_again(work.collection, info, info.stk)
    if why_not is not None:
        print(why_not, file=sys.stderr, flush=True)
