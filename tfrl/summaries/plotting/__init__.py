"""Curves of runs: read from events, averaged, drawn."""
