"""Make the README's picture: a generated city on a local cluster, its report, and parts of that seen by a browser."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from browser import Browser, NoBrowserError, find_browser
from PIL import Image

from spatialnosql import LocalCluster, connect, generate_city
from spatialnosql.adopt import adopt
from spatialnosql.demo_report import write_report

POINTS = 200_000
WIDTH = 1180
SHOWN = ("map", "query-2")
"""The sections of the report that are in the picture; the whole is several metres long."""
MOST_BYTES = 300_000


def main() -> int:
    """Write the picture to the file given."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/report.png")
    try:
        program = find_browser()
    except NoBrowserError as error:
        print(f"picture: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="spatialnosql-picture-") as folder:
        page = Path(folder) / "report.html"
        make_report(page)
        data = picture(program, page)
    out.write_bytes(data)
    print(f"{out}: {len(data):,} bytes")
    return 0 if len(data) < MOST_BYTES else 1


def make_report(path: Path) -> None:
    """The report of a generated city, adopted as a user would."""
    city = generate_city(POINTS)
    with LocalCluster(shards=3) as cluster, connect(cluster.uri) as client:
        database = client.city
        for batch in city.to_documents():
            database.points.insert_many(batch)
        adopt(database.points, "loc")
        write_report(database, city, path, with_alerts=False)


def picture(program: str, page: Path) -> bytes:
    """The beginning of the page and some of its sections."""
    browser = Browser(program)
    try:
        with browser.open(page, WIDTH, 1000) as tab:
            kept = ", ".join(f"#{name}" for name in SHOWN)
            tab.evaluate(
                f"document.querySelectorAll('section:not({kept}), nav, footer, button').forEach((one) => one.remove())"
            )
            shot = tab.screenshot(whole=True)
    finally:
        browser.close()
    seen = Image.open(io.BytesIO(shot)).convert("RGB")
    return min((_png(seen), _png(seen.quantize(256, kmeans=2, dither=Image.Dither.NONE))), key=_too_large)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _too_large(data: bytes) -> int:
    """All colours if they fit; else few."""
    return max(len(data) - MOST_BYTES, 0)


if __name__ == "__main__":
    sys.exit(main())
