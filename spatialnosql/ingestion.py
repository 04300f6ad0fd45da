"""What an ingest did, as a value: for the metadata, for JSON, and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from spatialnosql.sharding import unevenness
from spatialnosql.skew import Choice


@dataclass(frozen=True)
class Ingestion:
    """The outcome of one batch; `rows` is the sum of what follows it, which is checked."""

    namespace: str
    batch: str
    rows: int
    written: int = 0
    replaced: int = 0
    moved: int = 0  # of the replaced, those that came from another place
    already_there: int = 0
    superseded: int = 0  # rows of one key in one batch: all but the last
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    choice: Choice | None = None
    chunks: int = 0
    shards: dict[str, int] = field(default_factory=dict)
    documents: int = 0  # in the collection, afterwards
    placement: str = ""
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    spark_start_s: float = 0.0
    attempts: int = 1
    dry_run: bool = False
    stk: dict[str, Any] | None = None  # what was sealed, for queries by place, time and words

    @property
    def seconds(self) -> float:
        """What it took, without starting Spark."""
        return sum(self.phases.values())

    @property
    def documents_per_s(self) -> float:
        """Rows that were dealt with a second, from the source to the indexed collection."""
        return (self.rows - self.quarantined) / self.seconds if self.seconds else 0.0

    @property
    def accounted(self) -> int:
        """Rows whose whereabouts are known."""
        return self.written + self.replaced + self.already_there + self.superseded + self.quarantined

    @property
    def max_over_mean(self) -> float:
        """How even the shards are: 1 is perfect."""
        return unevenness({name: float(count) for name, count in self.shards.items()}) if self.shards else 1.0

    def to_document(self) -> dict[str, Any]:
        """For JSON and the ledger."""
        document = asdict(self)
        document["choice"] = None
        del document["choice"]
        return document | {
            "accounted": self.accounted,
            "precision": self.choice.to_document() if self.choice else None,
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "spark_start_s": round(self.spark_start_s, 3),
            "seconds": round(self.seconds, 3),
            "docs_per_s": round(self.documents_per_s, 1),
            "max_over_mean": round(self.max_over_mean, 4),
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.namespace}, batch {self.batch}" + (": nothing was changed" if self.dry_run else "")]
        table = [
            ("rows in", self.rows),
            ("would be written" if self.dry_run else "written", self.written),
            ("replaced", self.replaced),
            ("already there", self.already_there),
            ("superseded by a later row of their key", self.superseded),
            ("quarantined", self.quarantined),
        ]
        lines += [
            f"  {label:<40}{count:>14,}"
            for label, count in table
            if count or label.endswith(("in", "written"))
        ]
        lines += [f"    {reason:<38}{count:>14,}" for reason, count in self.reasons.items()]
        if self.moved:
            lines.append(f"    {'replaced ones that came from elsewhere':<38}{self.moved:>14,}")
        if self.accounted == self.rows:
            lines.append("  every row is accounted for: rows in = the sum of these")
        if self.choice is not None:
            lines += ["", *self.choice.lines()]
        if self.placement:
            lines.append(f"Placement: {self.placement}.")
        if self.shards and not self.dry_run:
            held = ", ".join(f"{name} {count:,}" for name, count in sorted(self.shards.items()))
            lines.append(
                f"{self.documents:,} documents in {self.chunks} chunks: {held}; max/mean {self.max_over_mean:.3f}"
            )
        if self.stk is not None:
            lines.append(self._sealed())
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.phases.items())
        lines.append(
            f"Seconds: {phases}; together {self.seconds:.1f}, Spark's start {self.spark_start_s:.1f}"
        )
        if not self.dry_run:
            lines.append(f"{self.documents_per_s:,.0f} documents/s from source to indexed collection")
        return lines

    def _sealed(self) -> str:
        assert self.stk is not None
        sizes = self.stk["settings"]
        words = f"bins of {sizes['bin_s']:,} s, cells of {sizes['cell_bits']} bits"
        if self.dry_run:
            return f"Place, time and words: {words}."
        fresh = f", {self.stk['fresh']:,} fresh (no time or no words)" if self.stk["fresh"] else ""
        return (
            f"Place, time and words: {self.stk['sealed']:,} sealed{fresh}; {words}; "
            f"{self.stk['filter_cubes']:,} filters, {self.stk['filter_bytes_added'] / 1e6:,.1f} MB added."
        )
