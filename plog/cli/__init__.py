"""The `plog` command: the command line parser, shared helpers and the tools.

Each tool is a module of this package, or a package whose entry is command.py. Queries and changes
that a tool sends to a cluster belong to `plog.client`; tools that work on a broker's files are in
`plogd.tools`. Start with main.py and commands.py, then read delete_records.py, a short tool.

A tool is a function that takes an `argparse.ArgumentParser`, adds its options and sets the default
`run`, a function from the parsed arguments to an exit code. The first line of its docstring is its
summary. plog's own tools are listed in commands.py, so that ``plog --help`` imports none of them;
other distributions add theirs through the entry point group ``plog.commands``.

Tools keep the names, flags, output and exit codes of Apache Kafka's scripts: 0 on success, 1 on
failure or wrong usage, 130 when interrupted from the keyboard. Admin tools use blocking sockets
(`SocketNetwork`) and never import Twisted, whose import takes longer than a whole request.
"""
