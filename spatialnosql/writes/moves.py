"""Updates, replacements and find-and-modifies against the server, each in as few commands as keep ``gh`` true.

An update whose new ``gh`` depends on the document is done in two: read the location, then send the user's update with
the ``gh`` that follows, on condition that the location is still as it was read. Who loses that race reads again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pymongo.results import UpdateResult
from pymongo.write_concern import WriteConcern

from spatialnosql.info import CollectionInfo
from spatialnosql.steps import Steps, call
from spatialnosql.writes.documents import with_gh
from spatialnosql.writes.guarded import change_each, change_one, raw_result, update_one
from spatialnosql.writes.updates import plan_update

Document: TypeAlias = Mapping[str, Any]


# -- what SpatialCollection calls -------------------------------------------------------------------------


def update_steps(
    collection: Any,
    filter: Any,
    update: Any,
    info: CollectionInfo,
    *,
    upsert: bool = False,
    many: bool = False,
    options: Document | None = None,
) -> Steps[UpdateResult]:
    """`update_one` or, with `many`, `update_many`; `options` are pymongo's own, of either."""
    options = dict(options or {})
    plan = plan_update(update, filter, info, upsert=upsert, many=many, codec_options=collection.codec_options)
    if plan.kind == "as it is" and not (many and upsert):
        method = collection.update_many if many else collection.update_one
        result: UpdateResult = yield from call(method, filter, update, upsert=upsert, **options)
        return result
    target = acknowledged(collection)
    if plan.kind != "one by one":
        result = yield from _sent(target, filter, plan.update, upsert, many, options)
    elif many:
        result = yield from change_each(target, filter, plan, info, upsert, options)
    else:
        send = update_one(target, _without(options, "sort"))
        found = yield from change_one(target, filter, plan, info, upsert, options, send)
        result = found or UpdateResult(raw_result(0, 0), True)
    return result if collection.write_concern.acknowledged else UpdateResult({}, False)


def replace_steps(
    collection: Any,
    filter: Any,
    replacement: Any,
    info: CollectionInfo,
    *,
    upsert: bool = False,
    options: Document | None = None,
) -> Steps[UpdateResult]:
    """`replace_one` with the right ``gh``."""
    document = with_gh(replacement, info, collection.codec_options)
    replace = acknowledged(collection).replace_one
    result: UpdateResult = yield from call(replace, filter, document, upsert=upsert, **(options or {}))
    return result if collection.write_concern.acknowledged else UpdateResult({}, False)


def find_one_and_steps(
    collection: Any,
    filter: Any,
    change: Any,
    info: CollectionInfo,
    *,
    replace: bool = False,
    upsert: bool = False,
    options: Document | None = None,
) -> Steps[Any]:
    """`find_one_and_update`, or `find_one_and_replace` with `replace`: the document, or None."""
    options = dict(options or {})
    target = acknowledged(collection)
    if replace:
        document = with_gh(change, info, collection.codec_options)
        return (yield from call(target.find_one_and_replace, filter, document, upsert=upsert, **options))
    plan = plan_update(change, filter, info, upsert=upsert, codec_options=collection.codec_options)
    if plan.kind != "one by one":
        return (yield from call(target.find_one_and_update, filter, plan.update, upsert=upsert, **options))
    rest = _without(options, "sort")

    def send(narrowed: Document, update: Any, insert: bool) -> Steps[Any]:
        return call(target.find_one_and_update, narrowed, update, upsert=insert, **rest)

    return (yield from change_one(target, filter, plan, info, upsert, options, send))


def acknowledged(collection: Any) -> Any:
    """The collection with a write concern that tells what happened.

    Without acknowledgement there are no retryable writes, and without those the server refuses, unheard, to
    change a shard key.
    """
    if collection.write_concern.acknowledged:
        return collection
    return collection.with_options(write_concern=WriteConcern(w=1))


# -- in one command ---------------------------------------------------------------------------------------


def _sent(
    target: Any,
    filter: Document,
    update: Any,
    upsert: bool,
    many: bool,
    options: dict[str, Any],
) -> Steps[UpdateResult]:
    result: UpdateResult
    if many:
        # A sharded cluster takes no update_many that may insert, unless the filter has the whole shard key.
        result = yield from call(target.update_many, filter, update, **options)
        if result.matched_count or not upsert:
            return result
    result = yield from call(target.update_one, filter, update, upsert=upsert, **options)
    return result


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}
