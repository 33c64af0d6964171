"""Checks on a CPU whether a run would compile and run on a TPU."""
