"""Loggers: each module has a `log(spec, folder)`, the context in which a callback writes the scalars of each epoch."""
