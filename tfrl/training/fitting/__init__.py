"""Agents inside `keras.Model.fit`: the model and its callbacks."""
