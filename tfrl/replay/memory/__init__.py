"""Rows of nests that live in host memory or in variables: storages and their parts."""
