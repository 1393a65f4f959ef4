"""The web UI: a read-only API and static files. Changes go through the gateway, as messages and slash commands.

    request → api (routes, compression, errors) → scoped_store (what the principal may see) → views/ → schemas, as JSON
    store changes → live (one poller, many streams)            static (the files in static/, with their headers)

Read `schemas.py` first, then `api.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.web.api import web_ui_router
    from perdure.web.static import static_files

__all__ = ["static_files", "web_ui_router"]


def __getattr__(name: str) -> Any:
    """Import lazily: the web framework is an optional dependency, and slow to import."""
    if name == "web_ui_router":
        from perdure.web.api import web_ui_router

        return web_ui_router
    if name == "static_files":
        from perdure.web.static import static_files

        return static_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
