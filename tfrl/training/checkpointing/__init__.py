"""The state of a run on disk, whole or not at all."""
