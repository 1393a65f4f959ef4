"""The command line: `main.py` names every command and imports none before it is called, so that `--help` is quick.

Each command is a small file of its own; read `main.py` first. What a command does belongs to the layers below: here are
only arguments, words and exit codes (0 done, 1 could not be done, 2 called wrongly, 130 interrupted).
"""
