"""Agents that learn from what they just played themselves."""
