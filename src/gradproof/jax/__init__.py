"""JAX's check_grads, check_jvp and check_vjp with the same arguments.

`from gradproof.jax import check_grads` replaces `from jax.test_util import check_grads`.
`docs/jax.md` lists the differences from JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

try:
    import jax
except ModuleNotFoundError:
    line = "gradproof.jax needs JAX: pip install jax"
    raise ModuleNotFoundError(line, name="jax") from None
import jax.numpy as jnp
from jax import tree_util

from gradproof import _asserts
from gradproof._data import options
from gradproof._data.inputs import name_of
from gradproof._data.settings import RTOL, RunSettings
from gradproof._engine import run_checks
from gradproof._guard import guard_face
from gradproof._numdiff.probes import random_cotangent, random_tangent
from gradproof._numdiff.steps import coordinate_scales
from gradproof.errors import DerivativeError, UsageError
from gradproof.jax._adapter import JaxMap, is_near
from gradproof.jax._call import JaxCall
from gradproof.jax._tree import JaxArguments, floating_leaves, is_floating

__all__ = ["check_grads", "check_jvp", "check_vjp"]

_EPS = 1e-4  # JAX's default, which here means: choose the steps
_CHECKS = {"fwd": ("forward", "linearity"), "rev": ("backward", "linearity")}
_WORDS = {"fwd": "JVP", "rev": "VJP"}

Tolerance = float | None


@guard_face
def check_grads(
    f: Callable[..., Any],
    args: Any,
    order: int,
    modes: Iterable[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Check derivatives up to an order, with the arguments of `jax.test_util.check_grads`.

    An entry of a Jacobian is wrong if it differs from the measured one by more than
    ``atol + rtol * |measured|`` and the error bar of the measurement, whatever the size.

    Args:
        f: a function of pytrees that returns a pytree of arrays.
        args: its positional arguments, of any shapes. Floating point and complex arrays and Python
            numbers are differentiated.
        order: highest order of the derivatives; each mode of each mode is checked.
        modes: some of "fwd" (`jax.jvp`) and "rev" (`jax.vjp`), or one.
        atol: absolute tolerance of an entry, in units of output per unit of input; None is 0.
        rtol: relative tolerance, likewise; None is 1e-6 where double precision decides.
        eps: the largest step, in units of the input; None lets gradproof choose.

    Raises:
        AssertionError: a derivative is wrong; a `DerivativeError`, whose `report` is the report.
        ValueError: nothing can be differentiated, or a mode does not exist.

    Example:
        >>> import jax.numpy as jnp
        >>> from gradproof.jax import check_grads
        >>> check_grads(jnp.sin, (jnp.ones(3),), order=2)
    """
    __tracebackhide__ = True
    requested = options.parse_strings("modes", (modes,) if isinstance(modes, str) else modes)
    if not requested or not set(requested) <= set(_WORDS):
        got = options.short_repr(list(requested))
        raise UsageError(f"modes: expected some of 'fwd' and 'rev', got {got}")
    depth = options.parse_integer("order", order, 1, "at least 1")
    question = _JaxQuestion(f, args, atol, rtol, eps)
    _judge_orders(question, question.map(), depth, requested)


@guard_face
def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Any,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = _EPS,
    err_msg: str = "",
) -> None:
    """Check that `f_jvp` computes the JVP of `f`, with the arguments of `jax.test_util.check_jvp`.

    Args:
        f, args, atol, rtol, eps: as for `check_grads`; the default of `eps` lets gradproof choose.
        f_jvp: a function of (primals, tangents) that returns (outputs, tangents of the outputs).
        err_msg: text before the message.

    Raises:
        AssertionError: a tangent is wrong, or the outputs are not those of `f`.

    Example:
        >>> import functools, jax, jax.numpy as jnp
        >>> from gradproof.jax import check_jvp
        >>> check_jvp(jnp.sin, functools.partial(jax.jvp, jnp.sin), (jnp.ones(3),))
    """
    __tracebackhide__ = True

    options.parse_function("f_jvp", f_jvp)

    def push(arguments: JaxArguments, arrays: Any, tangents: Any) -> Any:
        _, primals, _ = arguments.tree_with(arrays)
        _, directions, _ = arguments.tree_with(tangents, list(map(_zero_tangent, arguments.leaves)))
        return floating_leaves(_require_pair("f_jvp", f_jvp(primals, directions))[1])

    def outputs(arguments: JaxArguments, primals: Any) -> Any:
        zeros = [jnp.zeros_like(value) for value in arguments.values]
        zero = list(map(_zero_tangent, arguments.leaves))
        return _require_pair("f_jvp", f_jvp(primals, arguments.tree_with(zeros, zero)[1]))

    _JaxQuestion(f, args, atol, rtol, eps, err_msg).judge_rule("fwd", outputs, push=push)


@guard_face
def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Any,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = _EPS,
    err_msg: str = "",
) -> None:
    """Check that `f_vjp` computes the VJP of `f`, with the arguments of `jax.test_util.check_vjp`.

    Args:
        f, args, atol, rtol, eps, err_msg: as for `check_jvp`.
        f_vjp: a function of the arguments that returns (outputs, function from cotangents to
            gradients), as `jax.vjp` does.

    Raises:
        AssertionError: a gradient is wrong, or the outputs are not those of `f`.

    Example:
        >>> import functools, jax, jax.numpy as jnp
        >>> from gradproof.jax import check_vjp
        >>> check_vjp(jnp.sin, functools.partial(jax.vjp, jnp.sin), (jnp.ones(3),))
    """
    __tracebackhide__ = True

    options.parse_function("f_vjp", f_vjp)

    def pull(arguments: JaxArguments, arrays: Any, cotangents: Any) -> Any:
        _, inputs, _ = arguments.tree_with(arrays)
        outputs, pulled = _require_pair("f_vjp", f_vjp(*inputs))
        leaves, tree = tree_util.tree_flatten(outputs)
        given = iter(cotangents)
        full = [next(given) if is_floating(leaf) else _zero_tangent(leaf) for leaf in leaves]
        gradients = pulled(tree_util.tree_unflatten(tree, full))
        flat = tree_util.tree_leaves(gradients, is_leaf=lambda leaf: leaf is None)
        first = len(arguments.leaves) - len(flat)  # the function stands before its arguments
        found = [flat[place - first] for place in arguments.places]
        return [
            jnp.zeros_like(array) if gradient is None else gradient
            for gradient, array in zip(found, arrays, strict=True)
        ]

    question = _JaxQuestion(f, args, atol, rtol, eps, err_msg)
    question.judge_rule(
        "rev", lambda _, primals: _require_pair("f_vjp", f_vjp(*primals))[:1], pull=pull
    )


class _JaxQuestion:
    """What is asked: a function with its arguments, the tolerances, a prefix."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: Any,
        atol: Tolerance,
        rtol: Tolerance,
        eps: float | None,
        prefix: str = "",
    ) -> None:
        self._f, self.prefix = options.parse_function("f", f), str(prefix)
        self.target = name_of(f)
        self._args = _argument_tuple(args)
        self.arguments = JaxArguments(_plain_function(f), self._args, {})
        self._require_numbers()
        self._atol = options.parse_optional(options.parse_number, "atol", atol)
        self._rtol = options.parse_optional(options.parse_number, "rtol", rtol)
        self._eps = options.parse_optional(options.parse_positive_number, "eps", eps)

    def _require_numbers(self) -> None:
        """DerivativeError, as where JAX's own measures NaN, for an input that is NaN."""
        __tracebackhide__ = True
        for name, value in zip(self.arguments.names, self.arguments.values, strict=True):
            if count := int(np.isnan(np.asarray(value)).sum()):
                raise DerivativeError(
                    f"{name} is NaN in {count} of {value.size} entries: a "
                    "derivative is checked at numbers; replace the values"
                )

    def map(self, **claims: Any) -> JaxMap:
        return JaxMap(JaxCall(self.arguments, **claims))

    def judge_rule(
        self, mode: str, outputs: Callable[[JaxArguments, Any], Any], **claims: Callable[..., Any]
    ) -> None:
        """Judge a rule by itself: what it returns for outputs, then what it claims."""
        __tracebackhide__ = True
        got, *tangents = outputs(self.arguments, self._args)
        self._require_same_outputs(got, self._f(*self._args))
        shapes = [np.shape(leaf) for leaf in floating_leaves(got)]
        for tangent in tangents:
            found = [np.shape(leaf) for leaf in floating_leaves(tangent)]
            if found != shapes:
                raise DerivativeError(
                    f"{self.prefix} tangents: their shapes are {found}, those of the outputs "
                    f"{shapes}"
                )
            pairs = zip(floating_leaves(tangent), floating_leaves(got), strict=True)
            if any(jnp.result_type(one) != jnp.result_type(other) for one, other in pairs):
                raise DerivativeError(f"{self.prefix} tangents: other dtypes than the outputs'")
        self.judge(self.map(**claims), {mode: _WORDS[mode]})

    def judge(self, map_: JaxMap, names: Mapping[str, str]) -> None:
        """Judge modes of a map, which share what is measured of it, each by a report of its own.

        Args:
            map_: the function, or a derivative of it.
            names: mode -> what its derivative is called.

        Raises:
            DerivativeError: one of them fails; what is undecided is a warning.
        """
        __tracebackhide__ = True
        settings = RunSettings(
            checks=sum((_CHECKS[mode] for mode in names), ()),
            atol=self._atol or 0.0,
            rtol=RTOL if self._rtol is None else self._rtol,
            rtol_is_chosen=self._rtol is not None,
            largest_step=None if self._eps in (None, _EPS) else self._eps,
            required=frozenset({"forward", "backward"}),
            **_asserts.current_run().options(),
        ).with_precision(map_.resolution)
        report = run_checks(map_, settings, target=self.target)
        for mode, name in names.items():
            results = tuple(each for each in report.checks if each.name in _CHECKS[mode])
            own = replace(report, target=f"{name} of {self.target}", checks=results)
            _asserts.settled_report(own, "warn", self.prefix)

    def _require_same_outputs(self, got: Any, expected: Any) -> None:
        """DerivativeError where a rule returns other outputs than the function."""
        __tracebackhide__ = True
        ours, theirs = (tree_util.tree_leaves(tree) for tree in (got, expected))
        what = " ".join(filter(None, (self.prefix, "primal")))
        if len(ours) != len(theirs):
            raise DerivativeError(f"{what}: {len(ours)} outputs, {self.target} has {len(theirs)}")
        for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            texts = _leaf_text(one), _leaf_text(other)
            if texts[0] != texts[1]:
                raise DerivativeError(
                    f"{what}: output {k} is {texts[0]}, that of {self.target} is {texts[1]}"
                )
            if is_floating(other):
                unit = float(jnp.finfo(jnp.result_type(other)).eps)
                got, known = (np.asarray(each).astype(complex) for each in (one, other))
                if not is_near(known, got, 64 * unit):  # a compiler may order sums otherwise
                    raise DerivativeError(
                        f"{what}: output {k} has other values than {self.target}'s"
                    )


def _argument_tuple(args: Any) -> tuple[Any, ...]:
    if not isinstance(args, Iterable) or (hasattr(args, "shape") and not args.shape):
        raise UsageError(f"args: expected a tuple of arguments, got {options.short_repr(args)}")
    try:
        return tree_util.tree_map(_as_array, tuple(args))  # type: ignore[no-any-return]  # a tuple
    except (TypeError, ValueError) as error:  # keys of a dict that have no order
        raise UsageError(f"args: JAX does not take them apart: {error}") from error


def _as_array(leaf: Any) -> Any:
    """A number of Python as the array that JAX makes of it."""
    return jnp.asarray(leaf) if isinstance(leaf, (float, complex)) else leaf


def _zero_tangent(leaf: Any) -> np.ndarray[Any, Any]:
    """The tangent, or cotangent, of what has none."""
    return np.zeros(np.shape(leaf), jax.dtypes.float0)


def _require_pair(name: str, returned: Any) -> Any:
    """What a rule returned: two things. UsageError where it is not."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise UsageError(f"{name}: it returns a pair, got {options.short_repr(returned)}")
    return returned


def _leaf_text(leaf: Any) -> str:
    try:
        return f"{jnp.result_type(leaf)}{list(np.shape(leaf))}"
    except TypeError:  # no array
        return type(leaf).__name__


def _judge_orders(
    question: _JaxQuestion, map_: JaxMap, order: int, modes: tuple[str, ...], words: str = ""
) -> None:
    """Every mode, and every mode of the derivative by every mode, up to the order."""
    __tracebackhide__ = True
    names = {mode: " of ".join(filter(None, (_WORDS[mode], words))) for mode in modes}
    question.judge(map_, names)
    if not words:
        for mode in modes:
            if difference := map_.another_value(forward=mode == "fwd"):
                raise DerivativeError(f"primal: {difference}")
    if order > 1:
        for mode, name in names.items():
            _judge_orders(question, _derivative_map(map_, mode), order - 1, modes, name)


def _derivative_map(map_: JaxMap, mode: str) -> JaxMap:
    """The derivative by one mode as a map of its own."""
    if mode == "rev":
        made = map_.derivative(random_cotangent(map_.codomain, 0, 0))
    else:
        scales = coordinate_scales(map_.domain, map_.point)
        made = map_.forward_derivative(random_tangent(map_.domain, scales, 0, 0))
    made.derived = True
    return made


def _plain_function(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function alone: what it holds is not differentiated, as in JAX."""

    def function(*args: Any) -> Any:
        return f(*args)

    function.__name__ = name_of(f)
    return function
