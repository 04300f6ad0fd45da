"""``spatialnosql rebalance city.trips --by load``: move hot chunks, by what the shards are asked and not by size."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from bson.min_key import MinKey
from pymongo.collection import Collection

from spatialnosql.chunk_load import (
    EVEN,
    MOST_MOVES,
    CellLoads,
    ChunkMove,
    ChunkRange,
    LoadPlan,
    filter_ranges,
    propose,
    unevenness,
)
from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.errors import UsageError
from spatialnosql.geohash import bound_to_string
from spatialnosql.metadata import load_info
from spatialnosql.sampled_queries import sampled_filters, sampling
from spatialnosql.sharding import (
    average_bytes,
    bound_to_cell,
    chunks,
    is_wanted,
    move_range,
    pieces_of,
    shard_key,
)
from spatialnosql.steps import run as run_steps
from spatialnosql.target import add_target, opened_collection

FEWEST = 20
"""Of fewer sampled queries nothing is concluded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target(parser)
    parser.add_argument(
        "--by",
        choices=("load",),
        required=True,
        help="load: documents times queries that touch them, from queries that the servers have sampled (by size: "
        "`spatialnosql adopt --rebalance`)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be moved, and move nothing")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="sample queries for so long first; it takes 100 s until the servers have stored any (default: use those "
        "sampled in the last week)",
    )
    parser.add_argument(
        "--even",
        type=float,
        default=EVEN,
        metavar="RATIO",
        help="what the busiest shard may have, times the mean (default: %(default)s)",
    )
    parser.add_argument(
        "--most-moves", type=int, default=MOST_MOVES, metavar="N", help="at a time (default: %(default)s)"
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Propose moves, and make them."""
    with opened_collection(args) as collection:
        if args.seconds > 0:
            with sampling(collection):
                print(f"sampling queries for {args.seconds:g} s ...", file=sys.stderr, flush=True)
                time.sleep(args.seconds)
        plan, queries = load_plan(collection, args.even, args.most_moves)
        moved = 0
        if not args.dry_run:
            for move in plan.moves:
                print(_line(move), file=sys.stderr, flush=True)
                make_move(collection, move)
                moved += 1
    if args.json:
        print(json.dumps(to_document(plan, queries, moved)))
    else:
        print("\n".join(lines(plan, queries, moved, dry_run=args.dry_run)))
    return EXIT_OK


def load_plan(
    collection: Collection[dict[str, Any]], even: float = EVEN, most_moves: int = MOST_MOVES
) -> tuple[LoadPlan, int]:
    """What should move, and by how many sampled queries."""
    name = collection.full_name
    info = run_steps(load_info(collection))
    if info.histogram is None or not is_wanted(shard_key(collection), info.gh):
        raise UsageError(
            f"{name} is not sharded by geohash with statistics; `spatialnosql adopt {name}` first"
        )
    filters = sampled_filters(collection)
    if len(filters) < FEWEST:
        raise UsageError(
            f"{len(filters)} queries of {name} were sampled, too few to go by ({FEWEST} at least); give --seconds 180 "
            "while it is being queried"
        )
    cells = CellLoads(info.histogram, [filter_ranges(one, info.gh) for one in filters])
    ranges = chunk_ranges(chunks(collection), info.gh)
    shards = [one["_id"] for one in collection.database.client["config"]["shards"].find().sort("_id", 1)]
    return propose(ranges, shards, cells, even, most_moves), len(filters)


def chunk_ranges(found: Sequence[dict[str, Any]], gh: str) -> list[ChunkRange]:
    """Chunks as ranges of cells; one within a single geohash is empty here, and stays where it is."""
    return [
        ChunkRange(bound_to_cell(one["min"][gh]), bound_to_cell(one["max"][gh]), one["shard"], number)
        for number, one in enumerate(found)
    ]


def make_move(collection: Collection[dict[str, Any]], move: ChunkMove) -> None:
    """Move a range; its ends are those of chunks as they are now, or between cells."""
    info = run_steps(load_info(collection))
    assert info.histogram is not None
    for one in chunks(collection):
        low, high = bound_to_cell(one["min"][info.gh]), bound_to_cell(one["max"][info.gh])
        first, last = max(low, move.low), min(high, move.high)
        if first >= last or one["shard"] == move.target:
            continue
        least = one["min"] if first == low else {info.gh: bound_to_string(first), "_id": MinKey()}
        most = one["max"] if last == high else {info.gh: bound_to_string(last), "_id": MinKey()}
        average = average_bytes(collection)
        for begin, end in pieces_of(least, most, info.gh, info.histogram, average):
            move_range(collection, begin, end, move.target)


def to_document(plan: LoadPlan, queries: int, moved: int) -> dict[str, Any]:
    """For JSON."""
    return {
        "queries": queries,
        "load": plan.before,
        "load_after": plan.after,
        "unevenness": unevenness(plan.before),
        "unevenness_after": unevenness(plan.after),
        "moves": [
            {
                "from": move.chunk.shard,
                "to": move.target,
                "min": bound_to_string(move.low),
                "max": bound_to_string(move.high),
                "load": move.load,
                "whole_chunk": move.whole,
            }
            for move in plan.moves
        ],
        "moved": moved,
    }


def lines(plan: LoadPlan, queries: int, moved: int, *, dry_run: bool) -> list[str]:
    """For people."""
    total = max(sum(plan.before.values()), 1e-9)
    said = [f"{queries:,} sampled queries; load (documents x queries that touch them) by shard:"]
    said += [
        f"  {shard:<20}{plan.before[shard] / total:>8.1%} -> {plan.after[shard] / total:.1%}"
        for shard in plan.before
    ]
    said.append(f"busiest over mean: {unevenness(plan.before):.2f} -> {unevenness(plan.after):.2f}")
    if not plan.moves:
        return [*said, "nothing to move"]
    if dry_run:
        return [*said, "would move:", *(f"  {_line(move)}" for move in plan.moves)]
    return [*said, f"moved {moved} ranges"]


def _line(move: ChunkMove) -> str:
    part = "chunk" if move.whole else "part of a chunk"
    low, high = bound_to_string(move.low), bound_to_string(move.high)
    return f"{part} [{low}, {high}) from {move.chunk.shard} to {move.target}"
