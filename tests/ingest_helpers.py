"""What the tests of the ingest share: a small city, and running the command."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pymongo.collection import Collection

from spatialnosql.cli import main

Documents = Collection[dict[str, Any]]
Row = tuple[int, float, float, str, str]
HEADER = "number,lon,lat,at,base"


def city(count: int, seed: int = 7, *, lng: float = -74.0, lat: float = 40.7, first: int = 0) -> list[Row]:
    """Rows of a number, a place, a time and a text."""
    chance = random.Random(seed)
    return [
        (
            first + number,
            round(chance.gauss(lng, 0.1), 6),
            round(chance.gauss(lat, 0.1), 6),
            f"2014-08-{chance.randrange(1, 29):02d}T{chance.randrange(24):02d}:15:00",
            chance.choice(["B02512", "B02598"]),
        )
        for number in range(count)
    ]


def write_csv(path: Path, rows: Sequence[Sequence[Any]], extra: Sequence[str] = ()) -> str:
    """A CSV file of rows, and lines as they are; returns its name."""
    lines = [HEADER, *(",".join(str(value) for value in row) for row in rows), *extra, ""]
    path.write_text("\n".join(lines))
    return str(path)


class Ingest:
    """``spatialnosql ingest`` in this process, into a collection of the test's database."""

    def __init__(self, uri: str, target: Documents, capsys: pytest.CaptureFixture[str]) -> None:
        self.uri, self.target, self._capsys = uri, target, capsys
        self.error = ""

    def __call__(self, *arguments: str, fails: bool = False) -> dict[str, Any]:
        """The JSON that it prints; nothing if it fails as it should, and then `error` is what it said."""
        self._capsys.readouterr()
        command = ["ingest", *arguments, "--into", self.target.full_name, "--uri", self.uri, "--json"]
        code = main(command)
        captured = self._capsys.readouterr()
        self.error = captured.err
        assert code == (1 if fails else 0), captured.err
        return {} if fails else dict(json.loads(captured.out.splitlines()[-1]))

    def text(self, *arguments: str) -> str:
        """The text that it prints."""
        self._capsys.readouterr()
        assert main(["ingest", *arguments, "--into", self.target.full_name, "--uri", self.uri]) == 0
        return self._capsys.readouterr().out
