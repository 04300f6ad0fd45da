"""What an update needs so that ``gh`` stays true: nothing, an addition, or to be done one document at a time.

Pure: an update, its filter and what is known of the collection in, an `UpdatePlan` out. The user's update is never
changed, and one that the server will refuse anyway is passed on for it to do so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions

from spatialnosql.errors import UsageError
from spatialnosql.expression import geohash_expression
from spatialnosql.info import CollectionInfo
from spatialnosql.writes.documents import as_stored, gh_of_location
from spatialnosql.writes.simulate import ARITHMETIC, ARRAY_OPERATORS, UNKNOWN, NotViable, Operation, apply
from spatialnosql.writes.unseal import unsealed
from spatialnosql.writes.upserts import equalities, inserted_by

Kind: TypeAlias = Literal["as it is", "send", "one by one"]

_OPERATORS = {"$set", "$setOnInsert", "$unset", "$rename", "$currentDate"} | ARITHMETIC | ARRAY_OPERATORS
_PLAIN_STAGES = {"$set", "$addFields", "$unset"}
_NEVER_MANY = "gh is in the shard key, which only updates of one document can change"


@dataclass(frozen=True)
class UpdatePlan:
    """How to send an update.

    "as it is": nothing to add. "send": `update` instead, in one command. "one by one": a command for each document;
    `update` if `operations` is empty, otherwise with the ``gh`` that follows from applying them to what the document
    holds now. `why` says it in words.
    """

    kind: Kind
    update: Any
    why: str
    operations: tuple[Operation, ...] = ()
    may_move: bool = False
    """Whether it may change the ``gh`` of a document that exists, and so must be alone in its batch."""


def plan_update(
    update: Any,
    filter: Any,
    info: CollectionInfo,
    *,
    upsert: bool = False,
    many: bool = False,
    codec_options: CodecOptions[Any] = DEFAULT_CODEC_OPTIONS,
) -> UpdatePlan:
    """Decide how to send an update (operators or a pipeline); UsageError for what cannot be kept true."""
    if not isinstance(filter, Mapping):
        return UpdatePlan("as it is", update, "the filter is no document")
    if isinstance(update, list):
        pipeline_plan = _plan_pipeline(update, filter, info, upsert=upsert, many=many)
        return unsealed(pipeline_plan, [path for stage in update for path in _stage_paths(stage)], info)
    if not _is_update(update):
        return UpdatePlan("as it is", update, "it is no update that the server takes")
    every = list(_operations(update))
    plan = _plan_operators(update, every, filter, info, upsert=upsert, many=many, codec_options=codec_options)
    return unsealed(plan, [path for one in every for path in _paths(one)], info)


def _plan_operators(
    update: Mapping[str, Any],
    every: list[Operation],
    filter: Mapping[str, Any],
    info: CollectionInfo,
    *,
    upsert: bool,
    many: bool,
    codec_options: CodecOptions[Any],
) -> UpdatePlan:
    if any(info.gh in (path.split(".")[0] for path in _paths(one)) for one in every):
        return UpdatePlan("as it is", update, f"it sets {info.gh} itself, for the server to judge")
    touching = tuple(
        replace(one, argument=as_stored(one.argument, codec_options))
        for one in every
        if any(_related(path, info.location) for path in _paths(one))
    )
    changing = tuple(one for one in touching if one.operator != "$setOnInsert")
    if not any(_matters(one, info.location) for one in changing):
        return _plan_insertion(update, filter, touching, info, upsert, codec_options)
    for one in changing:
        _refuse(one, info)
    if all(_settles(one, info.location) for one in changing):
        try:
            changed = add_gh(update, info.gh, gh_after({}, changing, info))
        except NotViable:  # paths that contradict each other
            return UpdatePlan("as it is", update, "it is no update that the server takes")
        if not many:
            return UpdatePlan("send", changed, "it says the whole location, and gh beside it", may_move=True)
        return UpdatePlan("one by one", changed, _NEVER_MANY, may_move=True)
    return UpdatePlan(
        "one by one", update, "the new gh depends on what each document holds", touching, may_move=True
    )


def _plan_insertion(
    update: Any,
    filter: Mapping[str, Any],
    touching: tuple[Operation, ...],
    info: CollectionInfo,
    upsert: bool,
    codec_options: CodecOptions[Any],
) -> UpdatePlan:
    """An update that leaves the location of documents that exist as it is."""
    if upsert:
        _, gh = inserted_by(filter, touching, info, codec_options)
        if gh is not None:
            return UpdatePlan(
                "send", add_gh(update, info.gh, gh, "$setOnInsert"), "what it inserts gets its gh"
            )
    return UpdatePlan("as it is", update, "it does not touch the location")


def _plan_pipeline(
    pipeline: Any,
    filter: Mapping[str, Any],
    info: CollectionInfo,
    *,
    upsert: bool,
    many: bool,
) -> UpdatePlan:
    paths = [path for stage in pipeline for path in _stage_paths(stage)]
    if any(path is not None and path.split(".")[0] == info.gh for path in paths):
        return UpdatePlan("as it is", pipeline, f"it sets {info.gh} itself, for the server to judge")
    by_filter = upsert and any(_related(path, info.location) for path, _ in equalities(filter))
    if not by_filter and not any(path is None or _related(path, info.location) for path in paths):
        return UpdatePlan("as it is", pipeline, "it does not touch the location")
    computed = {"$ifNull": [geohash_expression(info.location, info.form), "$$REMOVE"]}
    changed = [*pipeline, {"$set": {info.gh: computed}}]
    if not many:
        return UpdatePlan("send", changed, "the server computes gh after the pipeline", may_move=True)
    return UpdatePlan("one by one", changed, _NEVER_MANY, may_move=True)


def _stage_paths(stage: Any) -> Iterator[str | None]:
    """The paths that a stage of an update pipeline sets or removes; None for any path at all."""
    if not isinstance(stage, Mapping) or len(stage) != 1 or next(iter(stage)) not in _PLAIN_STAGES:
        yield None
        return
    fields = next(iter(stage.values()))
    if isinstance(fields, str):
        yield fields
    elif isinstance(fields, (Mapping, list, tuple)):
        yield from (path if isinstance(path, str) else None for path in fields)
    else:
        yield None


# -- operators --------------------------------------------------------------------------------------------


def _is_update(update: Any) -> bool:
    """Whether it is made of known operators, of fields by name."""
    return (
        isinstance(update, Mapping)
        and len(update) > 0
        and all(
            operator in _OPERATORS
            and isinstance(fields, Mapping)
            and all(isinstance(path, str) for path in fields)
            for operator, fields in update.items()
        )
    )


def _operations(update: Mapping[str, Any]) -> Iterator[Operation]:
    for operator, fields in update.items():
        for path, argument in fields.items():
            if operator == "$rename":
                yield Operation(operator, str(argument), path)
            else:
                yield Operation(operator, path, argument)


def _paths(operation: Operation) -> tuple[str, ...]:
    if operation.operator == "$rename":
        return operation.path, operation.argument
    return (operation.path,)


def _related(path: str, location: str) -> bool:
    """Whether a path is the location, leads to it or goes into it."""
    mine, its = path.split("."), location.split(".")
    shorter = min(len(mine), len(its))
    return mine[:shorter] == its[:shorter]


def _leads_to(path: str, location: str) -> bool:
    return location.startswith(path + ".")


def _matters(operation: Operation, location: str) -> bool:
    """Whether an operator that touches the location can change ``gh``.

    Above the location it works on an array or a number only, under which there is no point before or after.
    """
    above = _leads_to(operation.path, location)
    return not (above and operation.operator in (ARRAY_OPERATORS | {"$inc", "$mul", "$bit"}))


def _settles(operation: Operation, location: str) -> bool:
    """Whether the location after the operator is known without the document."""
    whole = [path == location or _leads_to(path, location) for path in _paths(operation)]
    if operation.operator == "$rename":  # away from here, not to here or within
        return whole[1] and not _related(operation.path, location)
    return operation.operator in ("$set", "$unset", "$currentDate") and whole[0]


def _refuse(operation: Operation, info: CollectionInfo) -> None:
    """Raise where no one can know what becomes of the location."""
    path, operator, location = operation.path, operation.operator, info.location
    inside = [location, f"{location}.coordinates"]
    positional = any(part.startswith("$") for path in _paths(operation) for part in path.split("."))
    unknown = operator in (ARRAY_OPERATORS | {"$bit"})
    if positional:
        what = f"{operator} of {path!r} changes elements of a location by position"
    elif unknown and (path in inside or path.startswith(f"{location}.coordinates.")):
        what = f"{operator} of {path!r} changes a location piece by piece"
    else:
        return
    raise UsageError(
        f"{what}, so that its {info.gh} cannot be known beforehand; set the whole location with "
        f"{{'$set': {{{location!r}: ...}}}}, or use an update pipeline, whose {info.gh} the server computes"
    )


def gh_after(document: dict[str, Any], operations: Iterable[Operation], info: CollectionInfo) -> str | None:
    """The ``gh`` of a document once operators are applied; NotViable where the server will refuse them."""
    changed = apply(document, operations)
    for name in info.location.split("."):
        changed = changed.get(name, {}) if isinstance(changed, dict) else {}
    if isinstance(changed, dict) and changed.get("type") != "Point" and UNKNOWN in list(changed.values())[:2]:
        raise UsageError(
            f"$bit changes a coordinate of {info.location!r}, so that its {info.gh} cannot be known beforehand; "
            f"set the whole location with {{'$set': {{{info.location!r}: ...}}}}"
        )
    return gh_of_location(changed, info.form)


def add_gh(update: Mapping[str, Any], field: str, gh: str | None, operator: str = "$set") -> dict[str, Any]:
    """A copy of an update that also sets ``gh``, or removes it."""
    name, value = ("$unset", "") if gh is None else (operator, gh)
    return {**update, name: {**update.get(name, {}), field: value}}
