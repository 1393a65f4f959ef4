"""The page: a window into every conversation. Read-only API plus static files; whatever changes something goes through
the gateway as a message or a slash command (`/title`, `/undo`, `/compress`).

    request → api (the routes) → scope (what this person may see) → one *_view per view → shapes, as JSON
              routes (refusals, packing)   fact_links, quote_links, tool_calls, images: parts of views
    store's changes → live (one poller, many listeners)        files → the page itself, from static/

Read `shapes.py` first, then `api.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.web.api import web_ui_router
    from perdure.web.static import static_files

__all__ = ["static_files", "web_ui_router"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: the web framework is an extra, and slow to import."""
    if name == "web_ui_router":
        from perdure.web.api import web_ui_router

        return web_ui_router
    if name == "static_files":
        from perdure.web.static import static_files

        return static_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
