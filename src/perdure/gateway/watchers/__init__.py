"""Who looks on: requests and turns as log lines, metrics and spans; figures only, never what was said."""
