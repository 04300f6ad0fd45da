"""Rule: each branch of an ``$or`` is a filter of its own, and is rewritten as one.

Before: ``{$or: [{loc: {$geoWithin: A}}, {loc: {$geoWithin: B}}]}``
After: both branches with conditions on ``gh``.

Sound because each branch is replaced by one that the same documents meet. Only worth it when every branch is bounded:
a single branch without a region makes the servers look everywhere, and then the ranges are ballast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.rewrite.plan import Context, Notes
from spatialnosql.rewrite.predicates import Conjunction

RewriteFilter: TypeAlias = Callable[[Mapping[str, Any], Context, Notes], Mapping[str, Any]]


def rewrite_branches(
    conjunction: Conjunction, context: Context, notes: Notes, rewrite_filter: RewriteFilter
) -> Conjunction:
    """Rewrite the branches of every ``$or``, if all branches of it can be."""
    if conjunction.predicates or conjunction.near is not None:
        return conjunction  # already bounded, and more tightly
    others = []
    for other in conjunction.others:
        branches = other.get("$or")
        if not isinstance(branches, list | tuple) or not all(isinstance(b, Mapping) for b in branches):
            others.append(other)
            continue
        draft = Notes()
        try:
            rewritten = []
            for branch in branches:
                before = len(draft.rules)
                rewritten.append(rewrite_filter(branch, context, draft))
                if len(draft.rules) == before:
                    break
        except SpatialNoSQLError:
            others.append(other)
            continue
        if len(rewritten) < len(branches) or len(draft.rules) < len(branches):
            if draft.rules:
                notes.declined("a branch of $or is bounded by no region")
            others.append(other)
            continue
        others.append({"$or": rewritten})
        notes.applied(
            "rewrite_branches", f"every one of {len(branches)} branches of $or: {'; '.join(draft.reasons)}"
        )
        notes.covers += draft.covers
        notes.estimates += draft.estimates
    return Conjunction(conjunction.predicates, conjunction.near, others)
