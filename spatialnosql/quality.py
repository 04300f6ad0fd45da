"""What can be wrong with the coordinates of a row, found without looking at anything else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The code of a fault is its place here; 0 is a good row.
FAULTS: tuple[str, ...] = ("", "missing", "out_of_range", "null_island", "swapped", "outside")
_CODE = {name: code for code, name in enumerate(FAULTS)}

Bounds = tuple[float, float, float, float]


def coordinate_faults(
    lng: NDArray[np.float64], lat: NDArray[np.float64], bounds: Bounds | None = None
) -> NDArray[np.int8]:
    """The fault of each row as a code into `FAULTS`, the gravest first.

    ``bounds`` (west, south, east, north) is where the data is known to lie. Only with it can a row be
    called swapped (right once longitude and latitude change places) or outside (valid, but elsewhere):
    without it 56 E, 11 N is as good a place as 11 E, 56 N.
    """
    faults = np.zeros(lng.shape, np.int8)
    if bounds is not None:
        west, south, east, north = bounds
        inside = (west <= lng) & (lng <= east) & (south <= lat) & (lat <= north)
        inside_swapped = (west <= lat) & (lat <= east) & (south <= lng) & (lng <= north)
        faults[~inside] = _CODE["outside"]
        faults[~inside & inside_swapped] = _CODE["swapped"]
    faults[(lng == 0) & (lat == 0)] = _CODE["null_island"]
    faults[(np.abs(lng) > 180) | (np.abs(lat) > 90)] = _CODE["out_of_range"]
    faults[~(np.isfinite(lng) & np.isfinite(lat))] = _CODE["missing"]
    return faults


def count_faults(faults: NDArray[np.int8]) -> dict[str, int]:
    """How many rows have each fault; faults that no row has are left out."""
    counts = np.bincount(faults, minlength=len(FAULTS))
    return {name: int(counts[code]) for code, name in enumerate(FAULTS) if code and counts[code]}
