"""Detect the target that a command's words or variables name: a system that others use, or one for development."""

from __future__ import annotations

import re

# Systems that others use, and systems of one developer, by name.
PRODUCTION = re.compile(r"(?:^|[^a-z0-9])(?:prod|prd|production|live)(?:[^a-z]|\Z)", re.I)
DEVELOPMENT = re.compile(
    r"(?:^|[^a-z0-9])(?:dev|devel|development|local|localhost|test|testing|sandbox|minikube|kind|k3d|docker-desktop"
    r"|rancher-desktop|orbstack|colima)(?:[^a-z]|\Z)",
    re.I,
)
# Variables that select the system a program works on.
DECIDING_VARIABLE = re.compile(
    r"(?:\w*_)?(?:ENV|ENVIRONMENT|STAGE|PROFILE|PROJECT|WORKSPACE|CLUSTER|CONTEXT|TARGET|ACCOUNT|SUBSCRIPTION|NAMESPACE|KUBECONFIG"
    r"|CONFIG|SETTINGS_MODULE|\w{0,20}HOST|\w{0,20}URL|URI|DSN|DATABASE|ENDPOINT|ADDR|ADDRESS)\Z"
)
# Of these, those that choose between settings of one program, as `NODE_ENV=production npm run build` does.
MODE_VARIABLE = re.compile(
    r"(?:NODE|MIX|RAILS|RACK|APP|FLASK|ASPNETCORE|DOTNET|BABEL|HUGO|JEKYLL|GATSBY|VITE|NEXT)_ENV\w*="
)
_MAX_CHARS = 200


def names_production(text: str) -> bool:
    """Return whether a word or a variable names a system that others use; text with blanks is code or prose."""
    return len(text) < _MAX_CHARS and PRODUCTION.search(text) is not None and not re.search(r"\s", text)


def names_development(text: str) -> bool:
    """Return whether a word names a system of one developer, and none that others use."""
    return DEVELOPMENT.search(text[:_MAX_CHARS]) is not None and not names_production(text)
