"""What a call makes the servers look at, whatever commands it sends: each is recorded, then explained.

`SpatialCollection` may send one command or several, of any form. To see what they cost there is no need to know how it
decides: a client of its own records them, and the server explains them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pymongo import MongoClient, monitoring
from pymongo.collection import Collection

from spatialnosql.examined import Examined, examined

# Of each command that reads, the parts that say what is read; sessions, batches and limits of time do not.
_PARTS = {
    "find": ("filter", "projection", "sort", "limit", "skip", "hint", "collation", "let", "min", "max"),
    "aggregate": ("pipeline", "hint", "collation", "let"),
    "count": ("query", "limit", "skip", "hint", "collation"),
    "distinct": ("key", "query", "hint", "collation"),
}


@dataclass
class Recorder(monitoring.CommandListener):
    """Keeps the commands that read."""

    commands: list[dict[str, Any]] = field(default_factory=list)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep it if it reads."""
        name = event.command_name
        if name in _PARTS:
            kept = {part: event.command[part] for part in _PARTS[name] if part in event.command}
            cursor: dict[str, Any] = {"cursor": {}} if name == "aggregate" else {}
            self.commands.append({name: event.command[name], **kept, **cursor, "$db": event.database_name})

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


@dataclass(frozen=True)
class Recording:
    """A client whose reading commands are known."""

    client: MongoClient[dict[str, Any]]
    recorder: Recorder

    def twin(self, collection: Collection[dict[str, Any]]) -> Collection[dict[str, Any]]:
        """The same collection through this client."""
        return self.client[collection.database.name][collection.name]

    def commands(
        self, collection: Collection[dict[str, Any]], ask: Callable[[], Any]
    ) -> list[dict[str, Any]]:
        """The commands to a collection that a call sends; those to metadata are left out."""
        self.recorder.commands.clear()
        ask()
        here = (collection.database.name, collection.name)
        sent = [command for command in self.recorder.commands if (command["$db"], _target(command)) == here]
        return [{name: value for name, value in command.items() if name != "$db"} for command in sent]

    def examine(self, collection: Collection[dict[str, Any]], ask: Callable[[], Any]) -> Examined:
        """What all commands of a call make the servers look at."""
        parts = []
        shards: set[str] = set()
        for command in self.commands(collection, ask):
            explained = collection.database.command("explain", command, verbosity="executionStats")
            parts.append(examined(explained))
            shards |= _shards(explained)
        whole = Examined.total(parts)
        # A shard that is asked twice for one query is one shard.
        asked = len(shards) or max((part.shards for part in parts), default=0)
        return Examined(whole.keys, whole.docs, asked, 1, whole.returned, whole.ms)


@contextlib.contextmanager
def recording(uri: str) -> Iterator[Recording]:
    """A client that records."""
    recorder = Recorder()
    with MongoClient[dict[str, Any]](uri, event_listeners=[recorder]) as client:
        yield Recording(client, recorder)


def _target(command: dict[str, Any]) -> Any:
    return command[next(name for name in _PARTS if name in command)]


def _shards(explained: Any) -> set[str]:
    """The names of the shards that an explained command went to; none if the document does not name them."""
    if "shards" in explained:
        return set(explained["shards"])
    stages = explained.get("executionStats", {}).get("executionStages", {})
    return {str(shard["shardName"]) for shard in stages.get("shards", []) if "shardName" in shard}
