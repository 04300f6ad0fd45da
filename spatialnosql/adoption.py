"""What `adopt` was asked for, and what it did, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spatialnosql.expression import Form
from spatialnosql.skew import Choice
from spatialnosql.verify import Verification


@dataclass(frozen=True)
class Options:
    """What the user wants; see `spatialnosql.adopt.adopt`."""

    location: str
    gh: str
    form: Form | None = None
    allow_unhashed: bool = False
    replace_gh: bool = False
    shard: bool = True
    rebalance: bool = False
    validator: bool = True
    precision: int | None = None


@dataclass(frozen=True)
class Step:
    """One step: what it did, in words, and how long it took."""

    name: str
    words: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Adoption:
    """An adopted collection, and how it became one."""

    namespace: str
    location: str
    gh: str
    form: Form
    unhashed: bool
    forms: dict[str, int]  # documents by how their location is written
    steps: tuple[Step, ...]
    choice: Choice | None
    shards: dict[str, int]  # documents on each
    validator: bool
    verification: Verification | None
    dry_run: bool = False

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "namespace": self.namespace,
            "location": self.location,
            "gh": self.gh,
            "form": self.form,
            "unhashed": self.unhashed,
            "forms": self.forms,
            "dry_run": self.dry_run,
            "steps": [
                {"name": step.name, "words": step.words, "seconds": round(step.seconds, 3)}
                for step in self.steps
            ],
            "precision": self.choice.to_document() if self.choice else None,
            "shards": self.shards,
            "validator": self.validator,
            "verification": self.verification.to_document() if self.verification else None,
        }

    def lines(self) -> list[str]:
        """For people."""
        counted = ", ".join(f"{count:,} {form}" for form, count in self.forms.items() if count)
        lines = [
            f"{self.namespace}: {counted or 'no documents yet'} in {self.location!r}; form {self.form!r}"
        ]
        for step in self.steps:
            took = "" if self.dry_run else f"  ({step.seconds:.1f} s)"
            lines.append(f"  {step.name:<9} {step.words}{took}")
        lines += self.choice.lines() if self.choice else []
        if self.shards:
            lines.append(
                "On the shards: " + ", ".join(f"{name} {n:,}" for name, n in sorted(self.shards.items()))
            )
        return [*lines, "Nothing was changed." if self.dry_run else f"{self.namespace} is ready."]
