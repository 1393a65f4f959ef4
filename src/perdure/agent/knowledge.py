"""What is known of the model at an endpoint: its window, what a call cost, what its service stated once."""

from __future__ import annotations

from perdure.agent.embedded import UNSTARTED
from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import Catalog
from perdure.models.limits import LearnedLimits, ModelKey, Window, Windows
from perdure.providers.endpoint_info import EndpointInfo
from perdure.providers.exchange import Endpoint


class ModelInfo:
    """Windows and prices by endpoint; construction asks nobody."""

    def __init__(
        self,
        catalog: Catalog,
        learned: LearnedLimits,
        *,
        info: EndpointInfo,
        configured_window: int | None = None,
        embedded_window: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._learned = learned
        self._info = info
        self._windows = Windows(catalog, learned, configured=configured_window)
        # What is configured is the main model's window, and nobody else's.
        self._side_windows = Windows(catalog, learned)
        # What the embedded model's server is started with; it holds for no other endpoint.
        self._embedded_window = embedded_window

    async def window_of(self, endpoint: Endpoint) -> int:
        return (await self.window(endpoint)).tokens

    async def window(self, endpoint: Endpoint) -> Window:
        """The window and who said so; may ask the endpoint, briefly, once."""
        if endpoint.base_url == UNSTARTED and self._embedded_window is not None:
            return Window(self._embedded_window, "config")

        async def ask(route: ModelKey) -> int | None:
            return await self._info.context_length(endpoint)

        return await self._windows.resolve(_route(endpoint), ask)

    def side_window(self, endpoint: Endpoint) -> int | None:
        """The window of a side job's model, as far as it is known without asking its endpoint."""
        found = self._side_windows.known(_route(endpoint))
        return found.tokens if found is not None else None

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        return self._learned.output_cap(_route(endpoint))

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None:
        if window is not None:
            self._learned.learn(_route(endpoint), window)
        if output is not None:
            self._learned.learn_output_cap(_route(endpoint), output)

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return self._catalog.cost_usd(endpoint.provider, endpoint.model, usage, base_url=endpoint.base_url)

    def takes_tools(self, endpoint: Endpoint) -> bool:
        """Whether the model can call tools: none are offered to one that cannot."""
        return self._catalog.facts(endpoint.provider, endpoint.model, base_url=endpoint.base_url).takes_tools


def _route(endpoint: Endpoint) -> ModelKey:
    return ModelKey(endpoint.provider, endpoint.model, endpoint.base_url)
