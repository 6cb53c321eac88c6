"""How ADA is computed: `composite` is the oracle, `native` the eager CPU path, `choice` picks one for each call."""

from apical.kernels.choice import Backend, backend

__all__ = ["Backend", "backend"]
