"""The `plog` command: a frame, and one file for each tool.

A tool is a function that takes an `argparse.ArgumentParser`, describes its options there and sets
the default `run`, a function from the parsed arguments to an exit code. Its docstring's first line
is its summary. Ours are rows of commands.py, which `plog --help` shows without importing a tool;
other distributions bring theirs through the entry point group ``plog.commands``.

Tools keep the names, flags, output and exit codes of Apache Kafka's scripts: 0 done, 1 refused,
failed or wrongly used, 130 stopped by the keyboard. Tools that only administrate talk over blocking
sockets (`plog.client`'s SocketNetwork) and never import Twisted: that alone takes longer than a
whole answer.
"""
