"""``python -m plog.cli``: the `plog` command where its console script is not on the path."""

import sys

from plog.cli.main import main

sys.exit(main())
