"""The `plog` command: a frame that finds its subcommands through the entry point group
``plog.commands``, so that nothing here knows the broker's packages.

An entry point is a function that takes an `argparse.ArgumentParser`, describes its options there
and sets the default `run`, a function from the parsed arguments to an exit code. Its docstring's
first line is what ``plog --help`` shows. Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""
