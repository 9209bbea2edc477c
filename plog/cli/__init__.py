"""The `plog` command: a frame, and one module or package for each tool.

Parsing, completion, output and the tools themselves belong here; a tool of one file is beside this
one, and a tool of several files has a package whose command.py is its entry. What a tool asks a
cluster belongs to `plog.client`, and tools that work on a broker's files are in `plogd.tools`.
Start with main.py and commands.py, then read delete_records.py, which is a short tool.

A tool is a function that takes an `argparse.ArgumentParser`, adds its options and sets the default
`run`, a function from the parsed arguments to an exit code. The first line of its docstring is its
summary. plog's own tools are rows of commands.py, so that ``plog --help`` imports none of them;
other distributions add theirs through the entry point group ``plog.commands``.

Tools keep the names, flags, output and exit codes of Apache Kafka's scripts: 0 done, 1 refused,
failed or used wrongly, 130 interrupted from the keyboard. Tools that only administrate use blocking
sockets (`SocketNetwork`) and never import Twisted, which takes longer than a whole answer.
"""
