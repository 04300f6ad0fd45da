"""Rule: conditions on the location become conditions on ``gh``, and the server tests only the boundary.

Before: ``{loc: {$geoWithin: SHAPE}}``
After: ``{$or: [{gh: INTERIOR RANGES}..., {$and: [{$or: [{gh: BOUNDARY RANGES}...]}, {loc: {$geoWithin: SHAPE}}]}]}``

Sound because ``gh`` is true: a document in an interior range lies in the shape, one in no range lies outside. Several
conditions on the location become one cover of their intersection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialnosql.region import IntersectionRegion
from spatialnosql.rewrite.cost import estimate
from spatialnosql.rewrite.fragments import all_of, any_of, conditions, cover_of
from spatialnosql.rewrite.plan import Context, Notes
from spatialnosql.rewrite.predicates import Conjunction


def replace_regions(conjunction: Conjunction, context: Context, notes: Notes) -> Conjunction:
    """Replace the predicates of a conjunction, unless that would cost more than it saves."""
    predicates = conjunction.predicates
    if not predicates or conjunction.near is not None:
        return conjunction
    if any(_names_documents(other.get("_id", {})) for other in conjunction.others):
        # Every range times every _id would be a seek of its own: seconds, where the _id alone takes none.
        notes.declined("the documents are named by their _id")
        return conjunction
    regions = tuple(predicate.region for predicate in predicates)
    region = regions[0] if len(regions) == 1 else IntersectionRegion(regions)
    covering = cover_of(region, context)
    cost = estimate(covering, context.info)
    if cost is not None and cost.rewritten_ms >= cost.original_ms and context.qos.precision == "cost":
        notes.declined(
            f"the cover would cost more than it saves ({cost.rewritten_ms:.1f} ms against {cost.original_ms:.1f} ms)"
        )
        return conjunction
    gh = context.info.gh
    tests = [predicate.condition for predicate in predicates]
    parts: list[dict[str, Any]] = conditions(covering.interior, gh)
    boundary = conditions(covering.boundary, gh)
    if boundary:
        parts.append(all_of([any_of(boundary, gh), *tests]))
    if context.info.unhashed:
        # Documents without gh may be anywhere.
        parts.append(all_of([{gh: None}, *tests]))
    what = "a region" if len(regions) == 1 else f"{len(regions)} regions"
    notes.applied(
        "replace_regions",
        f"{what} covered by {len(covering.interior)} interior and {len(covering.boundary)} boundary ranges"
        + ("" if cost is not None else ", without statistics"),
    )
    notes.covers.append(covering)
    if cost is not None:
        notes.costs.append(cost)
    return Conjunction([], None, [any_of(parts, gh), *conjunction.others])


def _names_documents(condition: Any) -> bool:
    """Whether a condition on ``_id`` is an equality or a list of values."""
    operators = (
        [key for key in condition if str(key).startswith("$")] if isinstance(condition, Mapping) else []
    )
    return "$eq" in operators or "$in" in operators or (not operators and condition != {})
