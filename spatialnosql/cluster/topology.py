"""From single servers to a sharded cluster: initiate the replica sets, add the shards, wait for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from spatialnosql.cluster.process import HOST, Patience, check_alive, last_words, wait_listening
from spatialnosql.cluster.state import State
from spatialnosql.errors import ClusterError

ALREADY_INITIALIZED = 23


def assemble(state: State, timeout_s: float) -> None:
    """Make the running servers one sharded cluster; harmless on one that already is."""
    patience = Patience(timeout_s)
    with ThreadPoolExecutor(max_workers=len(state.names), thread_name_prefix="cluster") as pool:
        # Started together: mongos waits by itself for the config server.
        primaries = [pool.submit(initiate, state, name, patience) for name in state.names if name != "mongos"]
        router = pool.submit(wait_listening, state, "mongos", patience)
        try:
            for future in as_completed((*primaries, router)):
                future.result()
        except BaseException:
            # The first failure counts; a mongos would wait for a dead config server to the end.
            patience.lose()
            raise
    add_shards(state, patience)


def open_client(port: int) -> MongoClient[dict[str, Any]]:
    """A client of one server, for the moments before there is a cluster."""
    return MongoClient(
        HOST, port, directConnection=True, serverSelectionTimeoutMS=2000, appname="spatialnosql cluster"
    )


def initiate(state: State, name: str, patience: Patience) -> None:
    """Make a server the only member of its replica set, and wait until it takes writes."""
    wait_listening(state, name, patience)
    port = state.ports[name]
    with open_client(port) as client:

        def is_primary() -> bool:
            hello = client.admin.command("hello")
            if hello.get("setName") is None:
                configuration = {
                    "_id": name,
                    "configsvr": name == "config",
                    "members": [{"_id": 0, "host": f"{HOST}:{port}"}],
                }
                try:
                    client.admin.command("replSetInitiate", configuration)
                except OperationFailure as error:
                    if error.code != ALREADY_INITIALIZED:
                        raise
            return bool(client.admin.command("hello").get("isWritablePrimary"))

        wait_for(is_primary, state, name, patience)


def add_shards(state: State, patience: Patience) -> None:
    """Add the shards that the cluster does not have yet, through the mongos."""
    with open_client(state.ports["mongos"]) as client:

        def all_added() -> bool:
            present = {shard["_id"] for shard in client.admin.command("listShards")["shards"]}
            for name in state.names:
                if name.startswith("shard") and name not in present:
                    address = f"{name}/{HOST}:{state.ports[name]}"
                    client.admin.command("addShard", address, name=name)
            return True

        wait_for(all_added, state, "mongos", patience)


def wait_for(condition: Callable[[], bool], state: State, name: str, patience: Patience) -> None:
    """Repeat until a condition on a server holds; errors of a server that is starting are not final."""
    while True:
        trouble: PyMongoError | None = None
        try:
            if condition():
                return
        except (AutoReconnect, OperationFailure) as error:
            trouble = error
        check_alive(state, name)
        if patience.lost:
            reason = f" ({trouble})" if trouble else ""
            raise ClusterError(f"{name} was not ready in time{reason}; {last_words(state, name)}")
        time.sleep(0.05)
