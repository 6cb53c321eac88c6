"""How ADA is computed: `composite` is the oracle, `native` the eager path on CPUs, `triton` on GPUs; `choice` picks."""

from apical.kernels.choice import Backend, backend

__all__ = ["Backend", "backend"]
