"""``python -m spatialnosql`` is the command line."""

import sys

from spatialnosql.cli import main

sys.exit(main())
