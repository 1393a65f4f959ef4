"""The command line: `main.py` lists the commands and imports each only when it is called, so that `--help` is quick.

A command or group of commands is a module; the chat is a package. They parse arguments, call the layers below, and
format the result. Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted. Read `main.py` first.
"""
