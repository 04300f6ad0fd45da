"""Rule: conditions on the location become conditions on ``gh``, and the server tests only the boundary.

Before: ``{loc: {$geoWithin: SHAPE}}``
After: ``{$or: [{gh: INTERIOR RANGES}..., {$and: [{$or: [{gh: BOUNDARY RANGES}...]}, {loc: {$geoWithin: SHAPE}}]}]}``

Sound because ``gh`` is true: a document in an interior range lies in the shape, one in no range lies outside. Several
conditions on the location become one cover of their intersection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialnosql.rewrite.cost import SERVER, Load, as_it_is, estimate, test_ms, why_as_it_is
from spatialnosql.rewrite.fragments import all_of, any_of, conditions, cover_of
from spatialnosql.rewrite.own_indexes import WITH_PLACE, why_not_by_ranges
from spatialnosql.rewrite.plan import Context, Notes
from spatialnosql.rewrite.predicates import Conjunction
from spatialnosql.rewrite.settled import region_of
from spatialnosql.rewrite.sorted_by import why_not_sorted


def replace_regions(conjunction: Conjunction, context: Context, notes: Notes) -> Conjunction:
    """Replace the predicates of a conjunction, unless that would cost more than it saves."""
    predicates, info = conjunction.predicates, context.info
    notes.answered = None  # what a branch may have said of itself
    if not predicates or conjunction.near is not None:
        return conjunction
    if any(_names_documents(other.get("_id", {})) for other in conjunction.others):
        # Every range times every _id would be a seek of its own: seconds, where the _id alone takes none.
        notes.declined("the documents are named by their _id")
        return conjunction
    others = tuple(conjunction.others)
    why_not = why_not_by_ranges(others, info, context.qos)
    if why_not == WITH_PLACE:
        notes.declined(why_not)
        return conjunction
    region, costs = region_of(conjunction), info.costs
    # A point of the boundary is read and tested by a server: a range is cheap beside a few of those.
    tested_ms = costs.key_ms + costs.fetch_ms + test_ms(region, info)
    covering = cover_of(region, context, costs.range_ms / tested_ms)
    load = None if info.histogram is None else Load.of(covering, info, info.histogram)
    wanted = context.wanted
    estimates = estimate(
        covering, region, info, limit=context.enough, load=load, others=others, wanted=wanted
    )
    notes.answered = load.answered(covering, others, info) if load is not None else None
    by_cost = context.qos.precision == "cost" and context.qos.form == "cheapest"
    if why_not is None and by_cost:
        why_not = why_not_sorted(wanted, others, None if load is None else load.outer / load.asked, info)
    if why_not is not None:
        notes.declined(why_not)  # and the answer will tell
        return conjunction
    if by_cost and estimates is not None and estimates[SERVER] >= estimates[as_it_is(estimates)]:
        notes.declined(why_as_it_is(estimates, estimates[SERVER]))
        return conjunction
    gh = info.gh
    tests = [predicate.condition for predicate in predicates]
    parts: list[dict[str, Any]] = conditions(covering.interior, gh)
    boundary = conditions(covering.boundary, gh)
    if boundary:
        parts.append(all_of([any_of(boundary, gh), *tests]))
    if info.unhashed:
        # Documents without gh may be anywhere.
        parts.append(all_of([{gh: None}, *tests]))
    what = "a region" if len(predicates) == 1 else f"{len(predicates)} regions"
    notes.applied(
        "replace_regions",
        f"{what} covered by {len(covering.interior)} interior and {len(covering.boundary)} boundary ranges"
        + ("" if estimates is not None else ", without statistics"),
    )
    notes.covers.append(covering)
    if estimates is not None:
        notes.estimates.append(estimates)
    return Conjunction([], None, [any_of(parts, gh), *conjunction.others])


def _names_documents(condition: Any) -> bool:
    """Whether a condition on ``_id`` is an equality or a list of values."""
    operators = (
        [key for key in condition if str(key).startswith("$")] if isinstance(condition, Mapping) else []
    )
    return "$eq" in operators or "$in" in operators or (not operators and condition != {})
