"""Settings: defaults < `config.yaml` < environment < flags, read once into one frozen value.

`settings.py` is the list of every key, and the file to read first. `load.py` gathers the sources and validates them,
`problems.py` says in plain words what is wrong with a value, `edit.py` changes the user's file and keeps its comments,
`keys.py` describes the keys for people. The environment is read in this package and nowhere else.
"""
