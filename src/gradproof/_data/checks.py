"""The table of the checks, in the order in which they run: cheap identities share what came first.

What differs from check to check is a field of its row, and every list of checks is made of these.
Adding one is a file in `_checks` and a row here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Check:
    """One row of the table."""

    name: str  # the check's
    # Its function, `module.function` in `_checks`: (measurements) -> CheckResult. One of several
    # rows takes the name of the row before these. Where "" it is `check` in the module of its name.
    run: str = ""
    order: int = 1  # of derivative that must be asked for before it runs
    # It has a row in a report of all checks also where that order was not asked for.
    always: bool = False
    # It measures a derivative. Where all such checks are skipped none was looked at.
    derivative: bool = False
    # Claims made in several runs of the function, which a random one makes differ.
    compares: bool = False
    named: bool = False  # a report has it only where it is asked for by name
    # Where one of these checks has failed it has nothing to add, and is not asked.
    after: tuple[str, ...] = ()
    # It is asked again at other inputs, by a sweep: it may fail there alone.
    elsewhere: bool = False
    advice: str = ""  # what to look at where it failed and no cause is named


_TWICE = (
    "call the backward, or the JVP, twice by hand, with v and with 2 v: its results have to "
    "double; look for squares, abs(), clamps, thresholds, rounding, narrower formats, tests for "
    "zero"
)
_BATCH = "compare vmap with a loop for a batch of one: look for shapes and axes taken as fixed"
_DERIVATIVE = (
    "the first derivative is judged by its own check: differentiate the backward's formula, term "
    "by term, with respect to the input and to the cotangent"
)


# AD transforms, which claim the same derivative another way; JAX has two of them.
TRANSFORMS = ("functional_vjp", "functional_jvp", "compiled", "checkpointed", "hooks")

TABLE: tuple[Check, ...] = (
    Check(
        name="value",
        compares=True,
        named=True,
        advice="compare the two functions operation by operation; the derivatives of another "
        "function are another's",
    ),
    Check(name="backward", derivative=True, elsewhere=True),
    Check(name="forward", run="backward.check_forward", derivative=True, elsewhere=True),
    Check(name="forward_vs_backward", compares=True, elsewhere=True),
    Check(name="linearity", compares=True, advice=_TWICE),
    Check(
        name="memory_layout",
        compares=True,
        advice="make the array contiguous at the start of the function or of its backward; if that "
        "mends it, an index there ignores strides",
    ),
    Check(name="grad_metadata", compares=True, elsewhere=True),
    Check(
        name="sparse",
        advice="compare the positions of the gradient's entries with those of the input",
    ),
    Check(
        name="missing_grad_output",
        compares=True,
        advice="call the backward with None, or zeros, for one output at a time: a missing "
        "grad_output means zero",
    ),
    Check(name="second_point", after=("backward", "forward"), compares=True),
    Check(
        name="determinism",
        advice="run it twice by hand with the same numbers and compare, buffer by buffer; look "
        "for atomics, dropout, uninitialised memory, a buffer that is added to and never cleared",
    ),
    Check(
        name="side_effects",
        advice="copy before writing: inputs, grad_output and what was saved belong to others",
    ),
    Check(name="batched", compares=True, advice=_BATCH),
    Check(name="batched_forward", run="batched.check_forward", compares=True, advice=_BATCH),
    Check(
        name="second_order",
        run="backward.check_second_order",
        order=2,
        always=True,
        derivative=True,
        elsewhere=True,
        advice=_DERIVATIVE,
    ),
    *(
        Check(
            name=name,
            run="backward.check_pair",
            order=2,
            derivative=True,
            elsewhere=True,
            advice=_DERIVATIVE,
        )
        for name in ("forward_over_reverse", "reverse_over_forward", "forward_over_forward")
    ),
    Check(
        name="third_order", run="backward.check_third", order=3, derivative=True, advice=_DERIVATIVE
    ),
    *(Check(name=name, run="transforms.check", compares=True, named=True) for name in TRANSFORMS),
)


def row_of_check(name: str) -> Check | None:
    """The row of that name; None where there is none."""
    return next((each for each in TABLE if each.name == name), None)
