"""``python -m plog.cli``: run the `plog` command when its console script is not on the path."""

import sys

from plog.cli.main import main

sys.exit(main())
