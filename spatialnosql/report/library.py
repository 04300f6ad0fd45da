"""The plotting library: plotly.js, as the Python package ``plotly`` brings it along."""

from __future__ import annotations

import functools
from importlib import resources

from spatialnosql.errors import MissingProgram


@functools.cache
def plotly_script() -> str:
    """The text of plotly.js; from the file of the package, whose Python part is slow to import and not needed."""
    try:
        file = resources.files("plotly.package_data") / "plotly.min.js"
        return file.read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        raise MissingProgram(
            "a report needs plotly.js, which comes with plotly: pip install 'spatialnosql[report]'"
        ) from None
