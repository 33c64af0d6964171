"""Agents that learn from recorded data, without playing."""
