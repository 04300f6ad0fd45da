"""A saved index: a folder of plain ``.npy`` arrays, mapped by whoever opens it.

They are mapped privately: a worker that removes a subscription changes a page of its own, never the file. All others
stay shared, so that ten workers on a machine hold the index once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.segment import Segment
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.vocabulary import Vocabulary

if TYPE_CHECKING:
    from spatialnosql.subscriptions.index import Index

FORMAT = 1
MANIFEST = "index.json"


def save(index: Index, folder: Path) -> None:
    """Write an index; the folder is there as a whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write_strings(fresh / "terms", index.vocabulary.terms)
        np.save(fresh / "frequencies.npy", index.vocabulary.frequencies)
        for rank, segment in enumerate(index.segments):
            part = fresh / f"segment-{rank}"
            part.mkdir()
            for owner in (segment, segment.table):
                for field in fields(owner):
                    value = getattr(owner, field.name)
                    if isinstance(value, Strings):
                        _write_strings(part / field.name, value)
                    elif isinstance(value, np.ndarray):
                        np.save(part / f"{field.name}.npy", value)
        manifest = {"format": FORMAT, "segments": len(index.segments), "subscriptions": len(index)}
        (fresh / MANIFEST).write_text(json.dumps(manifest))
        fresh.chmod(0o755)
        if folder.exists():
            _require_index(folder)
            stale = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            folder.rename(stale / "index")
            fresh.rename(folder)
            shutil.rmtree(stale)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load(folder: Path) -> tuple[list[Segment], Vocabulary]:
    """Map what `save` wrote."""
    manifest = _require_index(folder)
    vocabulary = Vocabulary(_read_strings(folder / "terms"), read_array(folder / "frequencies.npy"))
    segments = []
    for rank in range(manifest["segments"]):
        part = folder / f"segment-{rank}"
        columns: dict[str, Any] = {
            field.name: _read_strings(part / field.name)
            if (part / f"{field.name}.data.npy").exists()
            else read_array(part / f"{field.name}.npy")
            for field in (*fields(Table), *fields(Segment))
            if field.name not in ("vocabulary", "table")
        }
        table = Table(
            **{f.name: columns.pop(f.name) for f in fields(Table) if f.name != "vocabulary"},
            vocabulary=vocabulary,
        )
        segments.append(Segment(table=table, **columns))
    return segments, vocabulary


def _require_index(folder: Path) -> dict[str, Any]:
    """What the folder says of itself; an error if it is no index, above all before it is replaced."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(folder)} is no saved index of subscriptions") from error
    if manifest.get("format") != FORMAT:
        raise UsageError(
            f"{os.fspath(folder)} is an index of format {manifest.get('format')}; this version reads {FORMAT}: "
            "build it again"
        )
    return manifest


def _write_strings(path: Path, strings: Strings) -> None:
    np.save(f"{path}.data.npy", strings.data)
    np.save(f"{path}.offsets.npy", strings.offsets)


def _read_strings(path: Path) -> Strings:
    return Strings(read_array(Path(f"{path}.data.npy")), read_array(Path(f"{path}.offsets.npy")))


def read_array(path: Path) -> NDArray[Any]:
    """Map an array; changes stay this process's own."""
    # Nothing of an empty array can be mapped. A plain array over the mapping, since loops are compiled for those.
    size = path.stat().st_size
    array = np.load(path, mmap_mode="c" if size > 4096 else None)
    return np.asarray(array)
