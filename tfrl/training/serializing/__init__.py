"""Python objects as files: what `dump` writes and what `load` admits."""
