"""``python -m plog.cli``: the `plog` command, for environments without its console script."""

import sys

from plog.cli.main import main

sys.exit(main())
