"""The index of a collection of subscriptions, kept up to date in a folder that workers map into their memory.

The folder holds the index as it was built (``base-N``) and what has changed since (``changes-N-K.bson``), one file for
each time that somebody looked. A *version* says how far to read: workers that had the one before apply only the rest.
Once much has changed, the index is built anew as the next base.

    folder/state.json   folder/base-1/   folder/changes-1-1.bson   folder/changes-1-2.bson
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import bson

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.index import Index, Names
from spatialnosql.subscriptions.model import Subscription, moment_of
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.store_writing import UTC
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.text_batches import TermReader
from spatialnosql.subscriptions.vocabulary import Vocabulary

STATE = "state.json"
READ_AT_ONCE = 50_000
REBUILT_AT, REBUILT_SHARE = 20_000, 0.1
"""The index is built anew when so many have changed, and so large a share of all."""


class Version(NamedTuple):
    """A state of an index in a folder: plain values, to be sent to workers."""

    folder: str
    base: int
    changes: int


@dataclass(frozen=True)
class Refreshed:
    """What has changed in an index."""

    added: int = 0
    removed: int = 0
    rebuilt: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.rebuilt)


class IndexKeeper:
    """Keeps the index of a collection of subscriptions; for one process, while others read."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        folder: str | Path,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.subscriptions = subscriptions
        self._folder = Path(folder).resolve()
        self._progress = progress
        self._folder.mkdir(parents=True, exist_ok=True)
        self._changed = 0
        self._until: dt.datetime
        self._base: int
        self._changes: int
        self.index: Index
        if not self._take_up():
            self._begin()

    @property
    def version(self) -> Version:
        """The newest state; give it to workers."""
        return Version(str(self._folder), self._base, self._changes)

    def refresh(self) -> Refreshed:
        """Take in what was added, changed and removed since the last time."""
        found = self.subscriptions.changes_since(self._until)
        # They look back a minute and tell of things that are known.
        added = [one for one in found.added if not self._knows(one)]
        gone = [
            one
            for one, there in zip(found.removed, self.index.find(found.removed), strict=True)
            if there >= 0
        ]
        self._until = found.until
        if added or gone:
            self._apply(added, gone)
        rebuilt = self._changed > max(REBUILT_AT, REBUILT_SHARE * self.index.live)
        if rebuilt:
            self._rebuild()
        elif added or gone:
            self._write_state()
        return Refreshed(len(added), len(gone), rebuilt)

    def _knows(self, one: Subscription) -> bool:
        number = int(self.index.find([one.id])[0])
        if number < 0:
            return False
        known = self.index.subscription(number)
        same = (known.owner, known.clauses, known.expires_ms) == (one.owner, one.clauses, one.expires_ms)
        return same and known.area.to_document() == one.area.to_document()

    def _apply(self, added: list[Subscription], gone: list[str]) -> None:
        changes = {"added": [one.to_document() for one in added], "removed": gone}
        self._changes += 1
        path = changes_path(self.version, self._changes)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(bson.encode(changes))
        fresh.replace(path)
        apply_changes(self.index, added, gone)
        self._changed += len(added) + len(gone)

    def _begin(self) -> None:
        """Read all subscriptions and build the index."""
        self._base, self._changes = self._last_base() + 1, 0
        self._until = self.subscriptions.now()
        table = read_table(self.subscriptions.list(), self._progress)
        self._save(Index.build(table.by_place()))

    def _rebuild(self) -> None:
        """Build the next base of what is there now."""
        table, _ = self.index.live_table()
        before = self._base
        self._base, self._changes = self._base + 1, 0
        self._save(Index.build(table.by_place()))
        self._remove_bases(before - 1)  # the last one may still be in use

    def _save(self, index: Index) -> None:
        base = base_path(self.version)
        index.save(base)
        self.index = Index.open(base)
        self._changed = 0
        self._write_state()

    def _write_state(self) -> None:
        state = {
            "namespace": self.subscriptions.collection.full_name,
            "rules": self.subscriptions.rules.to_document(),
            "until": self._until.isoformat(),
            "base": self._base,
            "changes": self._changes,
            "changed": self._changed,
        }
        fresh = self._folder / f"{STATE}.new"
        fresh.write_text(json.dumps(state))
        fresh.replace(self._folder / STATE)

    def _take_up(self) -> bool:
        """Open what an earlier process has left here, if it is of these subscriptions and young enough."""
        path = self._folder / STATE
        if not path.exists():
            if any(self._folder.iterdir()):
                raise UsageError(
                    f"{self._folder} is not empty and holds no index; give a folder for the index alone"
                )
            return False
        state = json.loads(path.read_text())
        namespace = self.subscriptions.collection.full_name
        if state["namespace"] != namespace:
            raise UsageError(
                f"{self._folder} holds the index of {state['namespace']}, not of {namespace}; give another folder"
            )
        if TextRules.from_document(state["rules"]) != self.subscriptions.rules:
            return False
        self._base, self._changes, self._changed = state["base"], state["changes"], state["changed"]
        self._until = moment_of(state["until"])
        try:
            self.index = open_index(self.version)
            self.refresh()
        except UsageError:
            return False  # too old, or of another version: read all anew
        return True

    def _last_base(self) -> int:
        numbers = [int(path.name.partition("-")[2]) for path in self._folder.glob("base-*")]
        return max(numbers, default=0)

    def _remove_bases(self, last: int) -> None:
        for path in self._folder.glob("base-*"):
            if int(path.name.partition("-")[2]) <= last:
                shutil.rmtree(path, ignore_errors=True)
        for path in self._folder.glob("changes-*"):
            if int(path.name.split("-")[1]) <= last:
                path.unlink(missing_ok=True)


class IndexReader:
    """An index as a worker has it: opened once, then brought from version to version."""

    def __init__(self, rules: TextRules) -> None:
        self._rules = rules
        self._version: Version | None = None
        self.index: Index
        self.terms: TermReader
        self.names: Names

    def bring_to(self, version: Version) -> None:
        """Be at a version."""
        before = self._version
        if before == version:
            return
        if before is None or before[:2] != version[:2] or before.changes > version.changes:
            self.index = open_index(version)
        else:
            read_changes(self.index, version, before.changes)
        # Terms that were not asked for before may be now.
        self.terms = TermReader(self._rules, self.index.vocabulary)
        self.names = self.index.names()
        self._version = version


def open_index(version: Version) -> Index:
    """The index of a version."""
    index = Index.open(base_path(version))
    read_changes(index, version, 0)
    return index


def read_changes(index: Index, version: Version, applied: int) -> None:
    """Apply what has changed after the first so many changes."""
    for number in range(applied + 1, version.changes + 1):
        changes = bson.decode(changes_path(version, number).read_bytes(), UTC)
        apply_changes(index, map(Subscription.from_document, changes["added"]), changes["removed"])


def apply_changes(index: Index, added: Iterable[Subscription], removed: list[str]) -> None:
    """Put changes into an index."""
    index.insert(added)
    numbers = index.find(removed)
    index.remove(numbers[numbers >= 0])


def base_path(version: Version) -> Path:
    """Where the index of a version was saved."""
    return Path(version.folder) / f"base-{version.base}"


def changes_path(version: Version, number: int) -> Path:
    """Where its changes of a number are."""
    return Path(version.folder) / f"changes-{version.base}-{number}.bson"


def read_table(
    subscriptions: Iterable[Subscription], progress: Callable[[int], None] = lambda _: None
) -> Table:
    """The table of any number of subscriptions, read in pieces, so that they are never all objects at once."""
    vocabulary = Vocabulary()
    pieces: list[Table] = []
    source: Iterator[Subscription] = iter(subscriptions)
    while piece := list(islice(source, READ_AT_ONCE)):
        pieces.append(Table.of(piece, vocabulary))
        progress(len(piece))
    if not pieces:
        return Table.of([], vocabulary)
    return Table.joined(pieces) if len(pieces) > 1 else pieces[0]
