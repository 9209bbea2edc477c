"""The `plog` command: the command line parser, shared helpers and the tools.

Each tool is a module of this package, or a subpackage with the entry point command.py. Requests to
a cluster belong in `plog.client`; tools that work on a broker's files are in `plogd.tools`. Start
with main.py and commands.py, then read delete_records.py, a short tool.

A tool is defined by a function that adds options to an `argparse.ArgumentParser` and sets the
default `run`: a function that takes the parsed arguments and returns an exit code. The first line
of that function's docstring is the tool's summary. commands.py lists plog's own tools; other
distributions add tools through the entry point group ``plog.commands``.

Tools keep the names, flags, output and exit codes of Apache Kafka's scripts: 0 on success, 1 on
failure or wrong usage, 130 when interrupted from the keyboard. Admin tools use blocking sockets
(`SocketNetwork`) and never import Twisted, because the import takes longer than a request.
"""
