"""Settings: defaults < `config.yaml` < environment < flags, read once into one frozen value.

`settings.py` is the list of every key, and the file to read first. `load.py` gathers the sources, validates them and
describes the problems, `edit.py` changes the user's file and keeps its comments, `keys.py` describes each key for help
and docs. The environment is read in this package and nowhere else.
"""
