"""What happens, on its way to whoever follows: events as values, numbered, as JSON, to streams and platforms."""
