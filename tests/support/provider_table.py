"""The table of docs/providers.md, as the code would write it."""

from __future__ import annotations

from perdure.providers.registry import PROVIDERS


def rendered() -> str:
    lines = ["| provider | mode | address | key in |", "|---|---|---|---|"]
    for s in PROVIDERS:
        mode = f"`{s.api_mode}`" if s.api_mode else "by its address"
        address = f"`{s.base_url}`" if s.base_url else "yours: `model.base_url`"
        keys = " or ".join(f"`{v}`" for v in s.key_variables) or "none needed"
        lines.append(f"| `{s.name}` | {mode} | {address} | {keys} |")
    return "\n".join(lines)
