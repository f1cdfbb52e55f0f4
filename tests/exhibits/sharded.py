"""Mistakes of JAX functions that span devices, each with its right twin, on four of the CPU.

The same museum as that of `ranks.py`; arrays are global here, and places are those of the whole.
Devices are asked for before JAX starts, so that this is a program of its own: it prints, as JSON,
what is said of the exhibits that it is called with, or of every mistake.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

COUNT = 4
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={COUNT}"
os.environ["JAX_ENABLE_X64"] = "1"

import jax  # noqa: E402
import jax.experimental  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import gradproof  # noqa: E402

TWINS = ("wrong", "right")
Rule = Callable[[Any], Any]
ROUND = [(device, (device + 1) % COUNT) for device in range(COUNT)]
BACK = [(after, before) for before, after in ROUND]


def mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()), ("d",))


def ruled(forward: Rule, backward: Rule) -> Rule:
    """A collective with a backward of its own, inside of a function that is not linear."""

    @jax.custom_vjp
    def rule(x: Any) -> Any:
        return forward(x)

    rule.defvjp(lambda x: (forward(x), None), lambda _, g: (backward(g),))
    return lambda x: rule(jnp.sin(x)) ** 2


def summed(x: Any) -> Any:
    return jax.lax.psum(x, "d")


def gathered(x: Any) -> Any:
    return jax.lax.all_gather(x, "d", tiled=True)


def own(g: Any, further: int = 0) -> Any:
    """The rows of this device, or of one further on."""
    rows = len(g) // COUNT
    place = (jax.lax.axis_index("d") + further) % COUNT
    return jax.lax.dynamic_slice_in_dim(g, place * rows, rows)


def turned(x: Any) -> Any:
    return jax.lax.ppermute(x, "d", ROUND)


def exchanged(x: Any) -> Any:
    """Rows to columns: its transpose is itself."""
    return jax.lax.all_to_all(x.reshape(COUNT, -1), "d", 0, 0, tiled=True).reshape(x.shape)


def scattered_sum(x: Any) -> Any:
    return jax.lax.psum_scatter(x, "d", tiled=True)


def among_zeros(g: Any) -> Any:
    """What this device has, and zeros for the others."""
    zeros = jnp.zeros((COUNT * len(g), *g.shape[1:]), g.dtype)
    return jax.lax.dynamic_update_slice_in_dim(zeros, g, jax.lax.axis_index("d") * len(g), 0)


def on_the_first(g: Any) -> Any:
    return jnp.where(jax.lax.axis_index("d") == 0, summed(g), 0.0)


def weighted(x: Any) -> Any:
    return x * (1.0 + jax.lax.axis_index("d"))


def on_a_short_wire(g: Any) -> Any:
    return summed(g.astype(jnp.bfloat16)).astype(g.dtype)


# Shards of other sizes: each device holds two rows, of which so many count.
SIZES = (2, 2, 1, 1)
STARTS = (0, 2, 4, 5)
EVEN = (0, 2, 4, 6)


def gathered_unevenly(x: Any) -> Any:
    """The rows of all devices that count."""
    return gathered(x)[jnp.array([0, 1, 2, 3, 4, 6])]


def own_of_uneven(g: Any, starts: tuple[int, ...]) -> Any:
    """The rows of this device, and zero for what does not count."""
    place = jax.lax.axis_index("d")
    found = jax.lax.dynamic_slice_in_dim(jnp.pad(g, (0, 2)), jnp.array(starts)[place], 2)
    return jnp.where(jnp.arange(2) < jnp.array(SIZES)[place], found, 0.0)


class Buffer:
    """A backward that leaves the sum to the host, and takes it up before it has arrived."""

    def __init__(self, waits: bool) -> None:
        self._waits, self._held = waits, dict[int, Any]()

    def __call__(self, g: Any) -> Any:
        shape = jax.ShapeDtypeStruct(g.shape, g.dtype)
        return jax.experimental.io_callback(self._taken, shape, jax.lax.axis_index("d"), summed(g))

    def _taken(self, device: Any, total: Any) -> Any:
        before = self._held.get(int(device), np.zeros_like(total))
        self._held[int(device)] = np.array(total)
        return self._held[int(device)] if self._waits else before


# Name -> the wrong backward, the right one, and the function: of each device's shard.
MISTAKES: dict[str, tuple[Rule, Rule, Rule]] = {
    "the mean's backward lacks the number of devices": (
        lambda x: summed(x) / COUNT,
        summed,
        lambda g: summed(g) / COUNT,
    ),
    "a missing psum": (summed, lambda g: g, summed),
    "a psum too many": (lambda x: 2 * x, lambda g: summed(2 * g), lambda g: 2 * g),
    "only device 0 has it": (summed, on_the_first, summed),
    "the backward of all_gather as a slice": (gathered, own, lambda g: own(summed(g))),
    "a psum_scatter whose backward does not gather": (scattered_sum, among_zeros, gathered),
    "the shards in a wrong order": (
        gathered,
        lambda g: own(summed(g), 1),
        lambda g: own(summed(g)),
    ),
    "a ppermute that goes on round": (turned, turned, lambda g: jax.lax.ppermute(g, "d", BACK)),
    "an all_to_all that is not turned round": (exchanged, lambda g: g, exchanged),
    "fewer bits on the wire": (summed, on_a_short_wire, summed),
    "shards taken for even": (
        gathered_unevenly,
        lambda g: own_of_uneven(summed(g), EVEN),
        lambda g: own_of_uneven(summed(g), STARTS),
    ),
    "the buffer of an unfinished transfer": (summed, Buffer(waits=False), Buffer(waits=True)),
}


def of_all(forward: Rule, backward: Rule, before: Any, after: Any) -> Callable[[Any], Any]:
    """A rule whose forward and backward run on the devices, with placements of input and output."""
    on_devices = partial(jax.shard_map, mesh=mesh(), check_vma=False)
    there = on_devices(forward, in_specs=before, out_specs=after)
    back = on_devices(backward, in_specs=after, out_specs=before)

    @jax.custom_vjp
    def rule(x: Any) -> Any:
        return there(x)

    rule.defvjp(lambda x: (there(x), None), lambda _, g: (back(g),))
    return jax.jit(lambda x: rule(jnp.sin(x)) ** 2)


# Those whose mistake lies in what all devices hold: likewise, with the placements.
PLACED: dict[str, tuple[Rule, Rule, Rule, Any, Any]] = {
    "Partial taken for Replicate": (
        weighted,
        weighted,
        lambda g: summed(weighted(g)),
        P(),
        P("d"),
    ),
    "summed in forward and in backward": (summed, summed, lambda g: g, P("d"), P()),
}


# Those that leave it to `jax.jit` with shardings what runs where: of the whole array.
AUTOMATIC: dict[str, tuple[Rule, Rule, Rule]] = {
    "the mean of a shard for that of the whole": (
        lambda x: x - x.mean(),
        lambda g: (g.reshape(COUNT, -1) - g.reshape(COUNT, -1).mean(1, keepdims=True)).ravel(),
        lambda g: g - g.mean(),
    ),
}


# Right ones, without a rule of their own.
RIGHT: dict[str, Rule] = {"a psum": lambda x: summed(jnp.sin(x)) ** 2 * x}


def function(name: str, which: str) -> Callable[[Any], Any]:
    """The function of all devices."""
    if name in PLACED:
        forward, wrong, right, before, after = PLACED[name]
        return of_all(forward, wrong if which == "wrong" else right, before, after)
    if name in AUTOMATIC:
        forward, wrong, right = AUTOMATIC[name]
        along = NamedSharding(mesh(), P("d"))
        rule = ruled(forward, wrong if which == "wrong" else right)
        return jax.jit(rule, in_shardings=along, out_shardings=along)
    if name in RIGHT:
        inner = RIGHT[name]
    else:
        forward, wrong, right = MISTAKES[name]
        inner = ruled(forward, wrong if which == "wrong" else right)
    return jax.jit(
        jax.shard_map(inner, mesh=mesh(), in_specs=P("d"), out_specs=P("d"), check_vma=False)
    )


def said(name: str, which: str) -> list[Any]:
    """Verdict, checks that fail, places, text."""
    divided = "all_to_all" in name or "psum_scatter" in name  # each device's part once more
    x = jnp.linspace(0.3, 2.0, 2 * COUNT * (2 if divided else 1))
    fn = function(name, which)
    if name != "Partial taken for Replicate":
        x = jax.device_put(x, NamedSharding(mesh(), P("d")))
    report = gradproof.check(fn, (x,), order=2 if name == "a psum" else 1, seed=3)
    failing = [result.name for result in report.checks if result.verdict == "failed"]
    places = [str(finding.input) for finding in report.findings if finding.input]
    return [str(report.verdict), failing, places, report.details()]


if __name__ == "__main__":
    assert len(jax.devices()) == COUNT
    mistakes = [f"{name}/{k}" for name in (*MISTAKES, *PLACED, *AUTOMATIC) for k in TWINS]
    for asked in sys.argv[1:] or mistakes:
        name, _, which = asked.rpartition("/")
        print(json.dumps([name, which, *said(name, which)]), flush=True)
