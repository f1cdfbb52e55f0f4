"""The mistakes of `_mistakes.py` that a rule of JAX can make, as functions of arrays.

A mistake in a backward changes the gradients of a cotangent; a mistake in a JVP changes the
tangent, and must stay linear, or JAX could not transpose it. Names are those of `_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

Gradients = Sequence[Any]
Pull = Callable[[Any], Gradients]


@dataclass(frozen=True)
class Mistake:
    """A name; what makes wrong gradients of (cotangent, right pullback, size); whether sized."""

    name: str
    plant: Callable[[Any, Pull, float], Gradients]
    sized: bool = False


def _first(gradients: Gradients, edit: Callable[[Any], Any]) -> Gradients:
    """The first gradient, flat, edited."""
    first, *rest = gradients
    return [edit(first.ravel()).reshape(first.shape), *rest]


def _tail(g: Any) -> Any:
    return jnp.arange(g.size) >= g.size - max(1, g.size // 4)


def _only(v: Any, place: int) -> Any:
    return jnp.zeros_like(v).ravel().at[place].set(v.ravel()[place]).reshape(v.shape)


def _row(v: Any, pull: Pull, factor: float) -> Gradients:
    return [g + factor * h for g, h in zip(pull(v), pull(_only(v, v.size // 2)), strict=True)]


def _entry(v: Any, pull: Pull, factor: float) -> Gradients:
    part = pull(_only(v, v.size // 2))[0].ravel()
    place = part.size // 2
    return _first(pull(v), lambda g: g.at[place].add(factor * part[place]))


BACKWARD = (
    Mistake("everything scaled", lambda v, pull, d: [(1 + d) * g for g in pull(v)], True),
    Mistake("one row scaled", _row, True),
    Mistake(
        "one column scaled",
        lambda v, pull, d: _first(pull(v), lambda g: g.at[g.size // 2].multiply(1 + d)),
        True,
    ),
    Mistake("one entry scaled", _entry, True),
    Mistake(
        "tail block scaled",
        lambda v, pull, d: _first(pull(v), lambda g: jnp.where(_tail(g), (1 + d) * g, g)),
        True,
    ),
    Mistake(
        "neighbour leaks in",
        lambda v, pull, d: _first(pull(v), lambda g: g + d * jnp.roll(g, -1)),
        True,
    ),
    Mistake("sign flipped", lambda v, pull, d: [-g for g in pull(v)]),
    Mistake("sign of one entry", lambda v, pull, d: _entry(v, pull, -2.0)),
    Mistake("zero", lambda v, pull, d: [jnp.zeros_like(g) for g in pull(v)]),
    Mistake("one column zero", lambda v, pull, d: _first(pull(v), lambda g: g.at[0].set(0))),
    Mistake(
        "tail block dropped",
        lambda v, pull, d: _first(pull(v), lambda g: jnp.where(_tail(g), 0, g)),
    ),
    Mistake("factor 2", lambda v, pull, d: [2 * g for g in pull(v)]),
    Mistake("factor 1/2", lambda v, pull, d: [g / 2 for g in pull(v)]),
    Mistake("reversed", lambda v, pull, d: _first(pull(v), lambda g: g[::-1])),
    Mistake("rolled by one", lambda v, pull, d: _first(pull(v), lambda g: jnp.roll(g, 1))),
    Mistake("absolute value", lambda v, pull, d: [jnp.abs(g) for g in pull(v)]),
    Mistake("grad_output ignored", lambda v, pull, d: pull(jnp.ones_like(v))),
    Mistake(
        "first grad_output for all",
        lambda v, pull, d: pull(jnp.broadcast_to(v.ravel()[0], v.shape)),
    ),
    Mistake("grad_output squared", lambda v, pull, d: pull(v * v)),
)


@dataclass(frozen=True)
class Bend:
    """A name; what makes a wrong tangent of (right one, size); whether sized."""

    name: str
    plant: Callable[[Any, float], Any]
    sized: bool = False


def _flat(edit: Callable[[Any, float], Any]) -> Callable[[Any, float], Any]:
    return lambda t, d: edit(t.ravel(), d).reshape(t.shape)


FORWARD = (
    Bend("everything scaled", lambda t, d: (1 + d) * t, True),
    Bend("one row scaled", _flat(lambda t, d: t.at[t.size // 2].multiply(1 + d)), True),
    Bend("tail block scaled", _flat(lambda t, d: jnp.where(_tail(t), (1 + d) * t, t)), True),
    Bend("neighbour leaks in", _flat(lambda t, d: t + d * jnp.roll(t, -1)), True),
    Bend("sign flipped", lambda t, d: -t),
    Bend("zero", lambda t, d: 0 * t),
    Bend("tail block dropped", _flat(lambda t, d: jnp.where(_tail(t), 0, t))),
    Bend("factor 2", lambda t, d: 2 * t),
    Bend("reversed", _flat(lambda t, d: t[::-1])),
    Bend("rolled by one", _flat(lambda t, d: jnp.roll(t, 1))),
)
