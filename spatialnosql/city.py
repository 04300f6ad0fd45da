"""Points that look like a real city, made from a seed: hot spots, street grain, empty water, bad rows.

>>> city = generate_city(1_000_000, seed=1)
>>> collection.insert_many(next(city.to_documents()))

The city itself (`city_plan`) never changes; the seed draws the points. Equal arguments give equal arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spatialnosql import city_plan as plan
from spatialnosql.errors import UsageError
from spatialnosql.quality import FAULTS, count_faults

KINDS: tuple[str, ...] = ("ride", "delivery", "scooter", "report")
_KIND_SHARES = (0.62, 0.22, 0.13, 0.03)
_KIND_FARES = {"ride": (2.6, 0.55), "delivery": (2.9, 0.4), "scooter": (1.2, 0.5), "report": (0.0, 0.0)}
MONTH_START, MONTH_DAYS = np.datetime64("2024-05-01T00:00:00", "s"), 31
# Of 1,000 points of a day, how many fall into each hour: quiet nights, two rush hours, late evenings.
_HOURLY = (18, 11, 7, 5, 7, 14, 29, 48, 57, 49, 42, 43, 47, 46, 47, 52, 60, 70, 73, 66, 56, 52, 53, 48)
_WEEKDAY = (0.90, 0.95, 1.0, 1.05, 1.2, 1.25, 0.85)  # Monday first
# How the bad rows divide; the order is that of `_make_bad`.
_BAD_SHARES = {"missing": 0.4, "null_island": 0.3, "swapped": 0.15, "out_of_range": 0.15}


@dataclass(frozen=True)
class City:
    """One array a column, one element a row, in order of time."""

    lng: NDArray[np.float64]
    """Degrees east; NaN where missing."""
    lat: NDArray[np.float64]
    """Degrees north; NaN where missing."""
    at: NDArray[np.datetime64]
    """When, to the second, UTC, within one month."""
    kind: NDArray[np.int8]
    """What, as an index into `KINDS`."""
    amount: NDArray[np.float64]
    """The fare; 0 for reports."""
    fault: NDArray[np.int8]
    """What is wrong with the row, as an index into `quality.FAULTS`; 0 for the good."""

    def __len__(self) -> int:
        return int(self.lng.size)

    @property
    def good(self) -> NDArray[np.bool_]:
        """Which rows are fit to be stored."""
        return np.equal(self.fault, 0)

    @property
    def bad_counts(self) -> dict[str, int]:
        """How many rows have which fault."""
        return count_faults(self.fault)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north of the city limit: every good row lies inside."""
        return plan.bounds()

    def to_documents(
        self,
        batch_size: int = 10_000,
        *,
        rows: Literal["good", "bad", "all"] = "good",
        extra: Mapping[str, Sequence[Any] | NDArray[Any]] | None = None,
    ) -> Iterator[list[dict[str, Any]]]:
        """Batches of ``{"_id", "loc": GeoJSON Point, "at", "kind", "amount"}``; ``_id`` is the row number.

        ``extra`` adds fields, each a column as long as the city. A row without coordinates has ``loc``
        null; other bad rows keep the point as it came, which a 2dsphere index may well refuse.
        """
        chosen = np.flatnonzero({"good": self.good, "bad": ~self.good, "all": np.ones(len(self), bool)}[rows])
        columns = {name: np.asarray(column) for name, column in (extra or {}).items()}
        for name, column in columns.items():
            if len(column) != len(self):
                raise UsageError(f"extra column {name!r} has {len(column)} rows, the city has {len(self)}")
        for start in range(0, chosen.size, batch_size):
            part = chosen[start : start + batch_size]
            documents = [
                {
                    "_id": row,
                    "loc": {"type": "Point", "coordinates": [lng, lat]}
                    if lng == lng and lat == lat
                    else None,
                    "at": at,
                    "kind": KINDS[kind],
                    "amount": amount,
                }
                for row, lng, lat, at, kind, amount in zip(
                    part.tolist(),
                    self.lng[part].tolist(),
                    self.lat[part].tolist(),
                    self.at[part].tolist(),
                    self.kind[part].tolist(),
                    self.amount[part].tolist(),
                    strict=True,
                )
            ]
            for name, column in columns.items():
                for document, value in zip(documents, column[part].tolist(), strict=True):
                    document[name] = value
            yield documents

    def neighbourhoods(self, count: int = 60) -> dict[str, Any]:
        """A GeoJSON FeatureCollection of adjacent, irregular areas that cover the land of the city."""
        from spatialnosql.neighbourhoods import neighbourhoods  # shapely is slow to import

        return neighbourhoods(count)


def generate_city(n: int, seed: int = 1, *, bad_share: float = 0.002) -> City:
    """A city of ``n`` rows, of which ``round(n * bad_share)`` are bad in known ways."""
    if n < 0:
        raise UsageError(f"a city cannot have {n} rows; give 0 or more")
    if not 0 <= bad_share <= 1:
        raise UsageError(f"bad_share is {bad_share}, it must be between 0 and 1")
    rng = np.random.default_rng(seed)
    x, y = _places(rng, n)
    lng, lat = plan.to_lng_lat(x, y)
    lng, lat = np.round(lng, 6), np.round(lat, 6)  # as GPS devices write them
    kind = rng.choice(len(KINDS), size=n, p=_KIND_SHARES).astype(np.int8)
    log_mean, log_spread = np.array([_KIND_FARES[name] for name in KINDS]).T
    amount = np.round(np.exp(rng.normal(log_mean[kind], log_spread[kind])), 2)
    amount[kind == KINDS.index("report")] = 0.0
    at = _times(rng, n)
    fault = _make_bad(rng, lng, lat, round(n * bad_share))
    return City(lng=lng, lat=lat, at=at, kind=kind, amount=amount, fault=fault)


def _places(rng: np.random.Generator, n: int) -> tuple[plan.Floats, plan.Floats]:
    """Dry places inside the city limit: draw, drop what fell into the water, draw again."""
    found: list[plan.Floats] = []
    missing = n
    while missing > 0:
        places = _draw(rng, missing + missing // 8 + 64)
        # The margin keeps rounding to six decimals from wetting anybody's feet.
        places = places[:, plan.on_land(places[0], places[1], margin_km=0.005)]
        found.append(places[:, :missing])
        missing -= found[-1].shape[1]
    x, y = np.concatenate(found, axis=1) if found else np.empty((2, 0))
    return x, y


def _draw(rng: np.random.Generator, n: int) -> plan.Floats:
    """Places of the whole mixture, in random order, some of them wet or beyond the limit."""
    spots = plan.HOT_SPOTS + plan.satellite_towns()
    shares = [spot.weight for spot in spots] + [plan.COUNTRYSIDE_SHARE, plan.RANKS_SHARE]
    component = rng.choice(len(shares) + 1, size=n, p=[*shares, 1 - sum(shares)])
    # One row of parameters per Gaussian; the three other components are overwritten below.
    table = np.array([(s.x, s.y, s.along_km, s.across_km, np.radians(s.angle_deg)) for s in spots])
    centre_x, centre_y, along, across, angle = table[np.minimum(component, len(spots) - 1)].T
    along, across = along * rng.standard_normal(n), across * rng.standard_normal(n)
    x = centre_x + along * np.cos(angle) - across * np.sin(angle)
    y = centre_y + along * np.sin(angle) + across * np.cos(angle)

    countryside, ranks, suburbs = (component == len(spots) + i for i in range(3))
    x[countryside] = rng.uniform(-plan.HALF_WIDTH_KM, plan.HALF_WIDTH_KM, countryside.sum())
    y[countryside] = rng.uniform(-plan.HALF_HEIGHT_KM, plan.HALF_HEIGHT_KM, countryside.sum())
    bearing, radius = rng.uniform(0, 2 * np.pi, suburbs.sum()), rng.gamma(2.0, 3.5, suburbs.sum())
    x[suburbs], y[suburbs] = 1 + 1.2 * radius * np.cos(bearing), 1 + 0.9 * radius * np.sin(bearing)

    compact = np.array([not spot.on_streets for spot in spots] + [False, True, False])
    streets = ~compact[component] & (rng.random(n) < 0.8)
    x[streets], y[streets] = plan.snap_to_streets(rng, x[streets], y[streets])
    rank_x, rank_y = plan.taxi_ranks()
    rank = rng.integers(0, rank_x.size, ranks.sum())
    x[ranks], y[ranks] = rank_x[rank], rank_y[rank]
    return np.stack([x, y])


def _times(rng: np.random.Generator, n: int) -> NDArray[np.datetime64]:
    """Times of one month in ascending order, by the rhythm of the day and the week."""
    first_weekday = (MONTH_START.astype("datetime64[D]").astype(int) + 3) % 7  # day 0 was a Thursday
    days = np.array([_WEEKDAY[(first_weekday + day) % 7] for day in range(MONTH_DAYS)])
    weights = np.outer(days, _HOURLY).ravel()
    hours = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(n), side="right")
    seconds = np.minimum(hours, weights.size - 1) * 3600 + rng.integers(0, 3600, n)
    return MONTH_START + np.sort(seconds).astype("timedelta64[s]")


def _make_bad(
    rng: np.random.Generator, lng: NDArray[np.float64], lat: NDArray[np.float64], count: int
) -> NDArray[np.int8]:
    """Spoil ``count`` rows in place, spread over the whole, and say which is bad how."""
    fault = np.zeros(lng.size, np.int8)
    chosen = rng.choice(lng.size, size=count, replace=False)
    cuts = np.round(np.cumsum(list(_BAD_SHARES.values()))[:-1] * count).astype(int)
    missing, null_island, swapped, out_of_range = np.split(chosen, cuts)
    lng[missing] = np.nan
    lat[missing[::2]] = np.nan  # every second one still has its longitude
    lng[null_island] = lat[null_island] = 0.0
    lng[swapped], lat[swapped] = lat[swapped], lng[swapped].copy()
    lng[out_of_range] += 360.0
    for name, rows in zip(_BAD_SHARES, (missing, null_island, swapped, out_of_range), strict=True):
        fault[rows] = FAULTS.index(name)
    return fault
