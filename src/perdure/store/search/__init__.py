"""Full-text search of messages and tool outputs, on SQLite and PostgreSQL.

Data flow: `tokenizer.py` splits stored text into terms for `index.py`; `query.py` parses a query; `candidates.py`
chooses the texts to rank, `ranking.py` ranks them, with `vectors.py` also by meaning, `snippets.py` shows where they
match, and `answers.py` adds replies. `addresses.py` opens a result. Read `search.py` first.
"""
