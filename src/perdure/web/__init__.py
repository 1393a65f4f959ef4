"""The page: a window into every conversation. Read-only API plus static files; whatever changes something goes through
the gateway as a message or a slash command (`/title`, `/undo`, `/compress`).

`shapes.py` is what the API answers, `api.py` the routes, one `*_view.py` per view makes the shapes out of the store,
`static/` is the page itself. Read `shapes.py` first.
"""
