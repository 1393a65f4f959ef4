"""Results that can be read as attributes and as mappings: `result.outcome` and `result["outcome"]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any


class MappingAccess:
    """Adds the reading methods of a mapping to a dataclass: its fields and its public properties are the keys.

    It is no `Mapping`: a result is never mistaken for a message, and it has no length, so that it is always true.
    """

    __slots__ = ()

    def keys(self) -> list[str]:
        """The names of the fields, then those of the properties."""
        kind: Any = type(self)
        properties = (name for name in dir(kind) if isinstance(getattr(kind, name), property))
        return [f.name for f in fields(kind)] + [name for name in properties if not name.startswith("_")]

    def __getitem__(self, name: str) -> Any:
        """The value of a field or property. Raises KeyError."""
        if name not in self.keys():
            raise KeyError(f"{name!r}; there are: {', '.join(self.keys())}")
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self.keys() else default

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.keys()]
