"""Writes that keep ``gh`` true: inserts, replacements, updates in every form, bulk writes.

Pure first: `with_gh` and `to_insert` give a document its geohash, `plan_update` says what an update needs. What takes
more than one command is written as steps for both clients: `update_steps`, `replace_steps`, `find_one_and_steps`,
`bulk_steps`.
"""

from __future__ import annotations

from spatialnosql.writes.bulk import bulk_steps
from spatialnosql.writes.documents import gh_of, to_insert, with_gh
from spatialnosql.writes.guarded import ConcurrentMoves
from spatialnosql.writes.moves import find_one_and_steps, replace_steps, update_steps
from spatialnosql.writes.updates import UpdatePlan, plan_update

__all__ = [
    "ConcurrentMoves",
    "UpdatePlan",
    "bulk_steps",
    "find_one_and_steps",
    "gh_of",
    "plan_update",
    "replace_steps",
    "to_insert",
    "update_steps",
    "with_gh",
]
