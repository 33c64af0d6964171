"""Policies and other parts as SavedModels that need no tfrl."""
