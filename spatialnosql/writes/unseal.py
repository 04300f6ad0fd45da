"""Writes to a collection with filters of words: who changes what a seal vouches for takes the seal away.

The document is fresh then, which every query looks at, until `spatialnosql.stk.sealing` seals it again. Without this
the server's validator would refuse the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spatialnosql.info import CollectionInfo
from spatialnosql.stk.settings import STK_FIELD, StkSettings

if TYPE_CHECKING:
    from spatialnosql.writes.updates import UpdatePlan


def fresh_document(document: dict[str, Any], settings: StkSettings) -> dict[str, Any]:
    """A document to insert without a seal, and with the words of its text where it brings none; the same dict."""
    document.pop(STK_FIELD, None)
    text = document.get(settings.text) if settings.text else None
    if isinstance(text, str) and settings.words not in document:
        document[settings.words] = list(settings.rules.terms(text))
    return document


def unsealed(plan: UpdatePlan, paths: Iterable[str | None], info: CollectionInfo) -> UpdatePlan:
    """The plan of an update that sets or removes these paths (None: any), without the seal of what it changes."""
    settings = info.stk
    if settings is None:
        return plan
    tops = {None if path is None else path.split(".")[0] for path in paths}
    if STK_FIELD in tops:
        return plan  # for the server to judge
    vouched = {settings.time, settings.words, info.gh, info.location.split(".")[0]}
    vouched |= {settings.text} if settings.text else set()
    if None not in tops and not tops & vouched:
        return plan
    return replace(
        plan, kind="send" if plan.kind == "as it is" else plan.kind, update=_without(plan.update, settings)
    )


def _without(update: Any, settings: StkSettings) -> Any:
    if isinstance(update, list):
        return [*update, {"$unset": [STK_FIELD]}]
    text = _text_set(update, settings)
    if text is not None:
        words = list(settings.rules.terms(text))
        update = {**update, "$set": {**update["$set"], settings.words: words}}
    return {**update, "$unset": {**update.get("$unset", {}), STK_FIELD: ""}}


def _text_set(update: Mapping[str, Any], settings: StkSettings) -> str | None:
    """The text that an update sets, unless it says something of the words itself."""
    touched = {str(path).split(".")[0] for fields in update.values() for path in fields}
    text = update.get("$set", {}).get(settings.text) if settings.text else None
    return text if isinstance(text, str) and settings.words not in touched else None
