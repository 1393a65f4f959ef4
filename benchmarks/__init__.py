"""Speed, memory and retention as tables: `python -m benchmarks [name …]`."""
