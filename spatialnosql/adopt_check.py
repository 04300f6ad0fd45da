"""Before a collection is adopted: what it is, how its locations are written, what is in the way. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from spatialnosql.cluster.deployment import Deployment
from spatialnosql.errors import UsageError
from spatialnosql.expression import Expression, Form, geohash_expression
from spatialnosql.geohash import ALPHABET, LENGTH
from spatialnosql.sharding import is_wanted, shard_key
from spatialnosql.validator import check_validator

Documents = Collection[dict[str, Any]]

GEOJSON, PAIR, DOCUMENT, OTHER, NONE = "GeoJSON point", "legacy pair", "legacy document", "other", "none"
SAMPLES = 5
A_GEOHASH = f"^[{ALPHABET}]{{{LENGTH}}}$"


@dataclass(frozen=True)
class Check:
    """What was found; `forms` counts the documents by how their location is written."""

    form: Form
    forms: dict[str, int]
    samples: tuple[Any, ...]  # the _id of some whose location is no point
    shard_key: dict[str, Any] | None

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return sum(self.forms.values())


def check(
    collection: Documents,
    location: str,
    gh: str,
    deployment: Deployment,
    *,
    form: Form | None = None,
    kept_form: Form | None = None,
    allow_unhashed: bool = False,
    replace_gh: bool = False,
    shard: bool = True,
    validator: bool = True,
) -> Check:
    """Look at a collection; a UsageError says in one sentence what is in the way and which option helps.

    `kept_form` is one decided on before, which stays if it still takes every point; `form` is the user's.
    """
    check_names(location, gh)
    options = check_kind(collection)
    if validator:
        check_validator(collection.full_name, options)
    key = shard_key(collection) if deployment.is_sharded else None
    if shard and deployment.is_sharded and not is_wanted(key, gh):
        _check_unique(collection, gh)
    forms, samples = count_forms(collection, location, form or "any")
    if sum(forms.values()) and not sum(n for name, n in forms.items() if name != NONE):
        raise UsageError(
            f"no document of {collection.full_name} has a field {location!r}; name the one with the points (--location)"
        )
    if forms[OTHER] and not allow_unhashed:
        raise UsageError(
            f"{forms[OTHER]:,} of {sum(forms.values()):,} documents have a {location!r} that is no single point on "
            f"Earth (_id {', '.join(repr(sample) for sample in samples)}{', ...' * (forms[OTHER] > len(samples))}): "
            "mend or remove them, or go on without a geohash for them (--allow-unhashed; slower queries)"
        )
    chosen = form or _form(forms, kept_form)
    if not replace_gh:
        _check_gh(collection, location, gh, chosen)
    return Check(chosen, forms, samples, key)


def check_names(location: str, gh: str) -> None:
    """Field names that can be meant so, and that do not lie within each other."""
    geohash_expression(location)
    for name in (location, gh):
        if not re.fullmatch(r"[^.$\0][^.\0]*(\.[^.$\0][^.\0]*)*", name) or name == "_id":
            raise UsageError(f"{name!r} cannot be the name of a field here")
    if f"{location}.".startswith(f"{gh}.") or f"{gh}.".startswith(f"{location}."):
        raise UsageError(
            f"gh cannot be kept in {gh!r}, for the location is in {location!r}; name another (--gh)"
        )


def check_kind(collection: Documents) -> Mapping[str, Any]:
    """The options of an ordinary collection; stops at everything else."""
    found = collection.database.list_collections(filter={"name": collection.name}).to_list()
    if not found:
        raise UsageError(f"there is no collection {collection.full_name}")
    options: Mapping[str, Any] = found[0].get("options", {})
    kind = str(found[0]["type"])
    if kind == "collection" and options.get("capped"):
        kind = "capped collection"
    if kind != "collection":
        raise UsageError(f"{collection.full_name} is a {kind}; only ordinary collections can be adopted")
    locale = options.get("collation", {}).get("locale", "simple")
    if locale != "simple":
        raise UsageError(
            f"{collection.full_name} has the collation {locale!r}, by which geohashes do not sort; it cannot be adopted"
        )
    return options


def _check_unique(collection: Documents, gh: str) -> None:
    for index in collection.list_indexes():
        names = list(index["key"])
        if index.get("unique") and names[:2] != [gh, "_id"] and names != ["_id"]:
            raise UsageError(
                f"the unique index {index['name']} of {collection.full_name} cannot be kept when it is sharded by "
                f"{{{gh}, _id}}: drop it, or adopt without sharding (--no-shard)"
            )


def count_forms(collection: Documents, location: str, form: Form) -> tuple[dict[str, int], tuple[Any, ...]]:
    """How many documents write their location in which way, and some whose location is no point of the form."""
    value = f"${location}"
    kinds: Expression = {
        "$switch": {
            "branches": [
                {"case": {"$eq": [{"$ifNull": [value, None]}, None]}, "then": NONE},
                {"case": {"$eq": [geohash_expression(location, form), None]}, "then": OTHER},
                {"case": {"$isArray": [value]}, "then": PAIR},
                {"case": {"$eq": [f"{value}.type", "Point"]}, "then": GEOJSON},
            ],
            "default": DOCUMENT,
        }
    }
    group = {"_id": kinds, "n": {"$sum": 1}, "samples": {"$firstN": {"input": "$_id", "n": SAMPLES}}}
    found = {row["_id"]: row for row in collection.aggregate([{"$group": group}])}
    forms = {
        name: int(found[name]["n"]) if name in found else 0 for name in (GEOJSON, PAIR, DOCUMENT, OTHER, NONE)
    }
    return forms, tuple(found[OTHER]["samples"]) if OTHER in found else ()


def _form(forms: Mapping[str, int], kept: Form | None) -> Form:
    """The narrowest form that takes every point there is, unless another was decided on that does too."""
    legacy = forms[PAIR] + forms[DOCUMENT]
    if kept == "any" or (kept == "geojson" and not legacy) or (kept == "legacy" and not forms[GEOJSON]):
        return kept
    if forms[GEOJSON] and not legacy:
        return "geojson"
    return "legacy" if legacy and not forms[GEOJSON] else "any"


def _check_gh(collection: Documents, location: str, gh: str, form: Form) -> None:
    """Stop if the field is in use for something else: another geohash, or no geohash at all."""
    present = {gh: {"$exists": True, "$ne": None}}
    other = {
        "$or": [
            {gh: {"$not": {"$regex": A_GEOHASH}}},
            {"$expr": {"$ne": [f"${gh}", geohash_expression(location, form)]}},
        ]
    }
    found = collection.find({"$and": [present, other]}, {gh: 1}).limit(1).to_list()
    if found:
        raise UsageError(
            f"{gh!r} of _id {found[0]['_id']!r} is not the geohash of {location!r}: keep geohashes in another field "
            "(--gh NAME), or overwrite this one (--replace-gh)"
        )
