"""Who gets in and how much they may ask: hosts, tokens, scopes, limits, and how one is refused."""
