"""Agents that learn from what they have just played."""
