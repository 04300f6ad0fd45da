"""What a join is asked to do, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spark_jobs.phases import Phased
from spark_jobs.points import COMPRESSED, SUFFIXES
from spatialnosql.errors import UsageError

BROADCAST, PARTITIONED, AUTO = "broadcast", "partitioned", "auto"
STRATEGIES = (AUTO, BROADCAST, PARTITIONED)
INNER, LEFT = "inner", "left"
BROADCAST_MB = 128


@dataclass(frozen=True)
class Job:
    """What is to be done; the names are those of the command line's options."""

    points: tuple[str, ...]
    polygons: str
    out: str | None = None
    how: str = INNER
    counts: bool = False
    strategy: str = AUTO
    broadcast_mb: float = BROADCAST_MB
    file_format: str | None = None
    lon: str | None = None
    lat: str | None = None
    point: str | None = None
    filter: Mapping[str, Any] | None = None
    select: tuple[str, ...] = ()
    polygon_id: str | None = None
    name: str = "polygon"

    def __post_init__(self) -> None:
        if self.points_collection is not None and (self.lon or self.lat or self.point):
            raise UsageError("a collection knows where its points are: no --lon, --lat or --point")
        if self.points_collection is None and self.filter is not None:
            raise UsageError("--filter is a MongoDB filter; the points of files have none")
        if self.point and (self.lon or self.lat):
            raise UsageError("give either --point or --lon and --lat")
        if self.out is None and not self.counts:
            raise UsageError("where to? Give --out FILE.parquet or --out DB.COLLECTION, or ask for --counts")
        if self.counts and (self.how == LEFT or self.select):
            raise UsageError("--counts are of polygons, of which all are listed: no --how left, no --select")
        sources = {*(self.points if self.points_collection else ()), self.polygons}
        if self.out in sources:
            raise UsageError(f"--out {self.out} is also a source; what is there would be replaced")
        if self.out_file is not None and self.points_collection is None:
            files = {Path(path).resolve() for path in self.points}
            if Path(self.out_file).resolve() in files:
                raise UsageError(f"--out {self.out} is also an input")

    @property
    def points_collection(self) -> str | None:
        """The collection that the points are in, if they are not in files."""
        if self.file_format is None and len(self.points) == 1 and not is_file(self.points[0]):
            return self.points[0]
        return None

    @property
    def polygon_collection(self) -> str | None:
        """The collection that the polygons are in, if they are not in a file."""
        return None if is_file(self.polygons) else self.polygons

    @property
    def out_file(self) -> str | None:
        """The Parquet file that is written, if any."""
        return self.out if self.out is not None and self.out.endswith(".parquet") else None

    @property
    def out_collection(self) -> str | None:
        """The collection that is written, if any."""
        return self.out if self.out_file is None else None

    @property
    def needs_server(self) -> bool:
        """Whether anything of it is in MongoDB."""
        return bool(self.points_collection or self.polygon_collection or self.out_collection)


def is_file(source: str) -> bool:
    """Whether a source is meant as files, not as ``DATABASE.COLLECTION``: by its name."""
    suffixes = [suffix.lower() for suffix in Path(source).suffixes if suffix.lower() not in COMPRESSED]
    known = bool(suffixes) and suffixes[-1] in SUFFIXES
    return known or "/" in source or "*" in source or Path(source).exists()


@dataclass
class Joined(Phased):
    """What a join did."""

    points: str
    polygons: int
    how: str
    strategy: str = BROADCAST
    why: str = ""
    parts: int = 0
    salted: int = 0  # parts that share one cell
    rows: int = 0
    invalid: int = 0
    matched: int = 0
    pairs: int = 0
    asked: int = 0
    unasked: int = 0
    ranges: int = 0  # that points were read in
    out: str | None = None
    counts: dict[str, int] | None = None

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        rate = round(self.rows / self.seconds, 1) if self.seconds else None
        return asdict(self) | self.timings() | {"points_per_s": rate}

    def lines(self) -> list[str]:
        """For people."""
        where = f" -> {self.out}" if self.out else ""
        lines = [f"{self.points} with {self.polygons:,} polygons{where}"]
        lines.append(f"  {self.strategy}: {self.why}")
        table = [
            ("points read", self.rows),
            ("without a valid place", self.invalid),
            ("in at least one polygon", self.matched),
            ("pairs of a point and a polygon", self.pairs),
            ("pairs that the server was asked about", self.asked),
        ]
        lines += [f"  {label:<40}{count:>14,}" for label, count in table]
        if self.unasked:
            lines.append(
                f"  {self.unasked:,} pairs are within 3 cm of a border and decided without a server, which might say "
                "otherwise"
            )
        if self.counts is not None and self.out is None:
            lines += ["", *(f"  {name:<40}{count:>14,}" for name, count in self.counts.items()), ""]
        rate = self.rows / self.seconds if self.seconds else 0.0
        lines.append(self.timings_line())
        lines.append(f"{rate:,.0f} points/s")
        return lines
