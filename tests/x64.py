"""A context with arrays of 64 bits, under its name in old and new versions of JAX."""

from __future__ import annotations

import jax

if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:  # before JAX 0.8
    from jax.experimental import enable_x64 as enable_x64
