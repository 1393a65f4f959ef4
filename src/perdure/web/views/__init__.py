"""One module per view of the web UI: queries the store and builds the response schema."""
