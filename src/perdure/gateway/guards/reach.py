"""Who can reach a gateway at all, by where it listens."""

from __future__ import annotations

from ipaddress import ip_address

from perdure.config.gateway import GatewaySettings
from perdure.core.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def refuse_open_doors(settings: GatewaySettings, *, has_tokens: bool) -> None:
    """Raises ConfigError where others could reach a gateway that asks nobody for a token."""
    if has_tokens:
        return
    if not is_loopback(settings.host):
        reach = f"listening on {settings.host} lets others reach it"
    elif settings.public_url or settings.allowed_hosts or settings.trusted_proxies:
        reach = "gateway.public_url, allowed_hosts or trusted_proxies say that others reach it"
    else:
        return
    raise ConfigError(f"{reach}, and no token is set; make one first: perdure gateway token add USER")
