"""Reports made by hand, one per thing that a renderer must be able to show."""

from __future__ import annotations

import math

from gradproof import Cause, CheckResult, Finding, Kink, Place, Report, Statistic, Verdict

PASSED, FAILED = Verdict.PASSED, Verdict.FAILED
INCONCLUSIVE, SKIPPED = Verdict.INCONCLUSIVE, Verdict.SKIPPED


def entry(i: int, j: int, claimed: float, measured: float, error: float = 2e-11) -> Finding:
    return Finding(
        check="backward",
        message="the backward disagrees with the measured derivative",
        input=Place("x", 0, (i, j)),
        output=Place("output 0", 0, (i, j)),
        claimed=claimed,
        measured=measured,
        error=error,
        allowed=1e-6 * abs(measured) + error,
    )


def report(*checks: CheckResult, **changes) -> Report:
    fields = {
        "target": "layer_norm",
        "inputs": ("x: float64[8, 16]", "weight: float64[16]"),
        "outputs": ("output 0: float64[8, 16]",),
        "calls": {"function": 14, "vjp": 11},
        "seconds": 0.0123,
        "seed": 1234,
    }
    return Report(**{**fields, **changes, "checks": checks})


BACKWARD_PASSED = CheckResult(
    "backward",
    PASSED,
    "4 probes, every entry right to 1e-6 (largest error bar 3e-11)",
    resolution=3e-11,
    calls={"function": 9, "vjp": 4},
    seconds=0.01,
)
BACKWARD_FAILED = CheckResult(
    "backward",
    FAILED,
    "3 wrong entries of 1,024 in the Jacobian of output 0 with respect to input 0",
    findings=(entry(1, 2, 1.1, 1.0),),
)
FORWARD_SKIPPED = CheckResult("forward", SKIPPED, "no jvp rule")


def kink(i: int) -> Kink:
    return Kink(
        "kink",
        Place("output 0", 0, (i,)),
        Place("x", 0, (i,)),
        low=0.0,
        high=1.0,
        claimed=0.5,
        message=f"x[{i}] -> output 0[{i}]: not differentiable, a kink; left slope 0, right slope "
        "1; claimed 0.5, between them",
    )


def statistics(array: str, **values: float) -> tuple[Statistic, ...]:
    """In units of eps of bfloat16, 1 of 4 allowed but for the values given."""
    names = ("slope", "mean", "rms", "row_slope", "column_slope", "worst_entry")
    return tuple(
        Statistic(SAME, array, name.replace("_", " "), values.get(name, 1.0), 4.0, 2.0**-7)
        for name in names
    )


SAME = "the same function in float64"


FACTOR = Cause(
    "factor",
    "every entry with respect to x[:, 3] is multiplied by 2",
    "ratio 2.000000 +- 3e-09 over 64 entries, 1.000000 elsewhere",
    "look for a term that is added twice, or a missing division by 2 in what the backward returns "
    "for x",
    0.98,
)
OTHERS = (Cause("accumulated twice", "the gradient is added to itself", score=0.4),)

# What a function of ordinary tensors gets: a line each is too much for 8 lines.
MANY_PASSED = (
    BACKWARD_PASSED,
    CheckResult("forward", PASSED, "128 x 144 Jacobian verified to 3e-11", resolution=3e-11),
    CheckResult("forward_vs_backward", PASSED, "forward mode and backward agree"),
    CheckResult("linearity", PASSED, "the backward is linear in cotangents of 2^-20 to 2^20"),
    CheckResult("memory_layout", PASSED, "the same in another memory layout: with gaps"),
    CheckResult("grad_metadata", PASSED, "gradients have dtype and shape of their inputs"),
    CheckResult("sparse", SKIPPED, "every entry of every input is in the domain"),
    CheckResult("missing_grad_output", PASSED, "undefined cotangents behave like zero"),
    CheckResult("second_point", PASSED, "a call far away has its own derivative"),
    CheckResult("determinism", PASSED, "two backwards give the same gradient"),
    CheckResult("side_effects", PASSED, "inputs and cotangent are left as they were"),
    CheckResult("batched", PASSED, "a batched backward equals the loop: torch.vmap"),
    CheckResult("batched_forward", PASSED, "batched forward mode equals the loop"),
    CheckResult("second_order", SKIPPED, "not asked for; order=2 asks for it"),
)

REPORTS = {
    "all_passed": report(*MANY_PASSED),
    "passed": report(
        BACKWARD_PASSED,
        CheckResult("forward_vs_backward", PASSED, "JVP and VJP agree to 4e-16"),
        FORWARD_SKIPPED,
        calls={"function": 1, "vjp": 1, "jvp": 1},
    ),
    "one_failure": report(BACKWARD_FAILED, FORWARD_SKIPPED, *MANY_PASSED[2:]),
    "explained": report(
        CheckResult(
            "backward",
            FAILED,
            "64 of 16,384 entries wrong: all with respect to x",
            findings=(entry(1, 2, 1.1, 1.0), entry(1, 3, 1.2, 1.1), entry(2, 3, 1.3, 1.2)) * 3,
            where="column 3 of x: x[:, 3]",
            causes=(FACTOR, *OTHERS),
            notes=("x[7, 0]: on the border of the domain or too near, not tested",),
        ),
        CheckResult(
            "forward_vs_backward", FAILED, "JVP and VJP disagree", (entry(1, 2, 1.1, 1.0),)
        ),
        CheckResult(
            "batched",
            FAILED,
            "a batch differs from the loop",
            findings=(entry(1, 2, 1.1, 1.0), entry(1, 3, 1.2, 1.1)),
            causes=(FACTOR,),
        ),
        FORWARD_SKIPPED,
        repeat="pytest test_norms.py::test_layer_norm --gradproof-seed=1234",
    ),
    "repeated_in_a_shell": report(
        BACKWARD_FAILED,
        repeat="gradproof check examples/wrong_layer_norm.py:layer_norm 'float64[8, 16]' "
        "'float64[16]' 'float64[16]' --reference 'my ops.py:layer_norm' --seed 1234",
    ),
    "many_inputs": report(
        BACKWARD_PASSED,
        inputs=tuple(f"encoder.layers.{i}.linear.weight: float64[16, 16]" for i in range(40)),
    ),
    "many_findings": report(
        CheckResult(
            "backward",
            FAILED,
            "5 wrong entries",
            findings=(
                entry(1, 2, 1.1, 1.0),
                entry(0, 15, 1.0000021, 1.0, 3e-9),  # visible only in the eighth digit
                Finding(  # complex, a scalar output, nothing claimed
                    "backward",
                    "wrong",
                    input=Place("params['a'][0]", 3, (), "imag"),
                    output=Place("output 1", 1, ()),
                    claimed=math.nan,
                    measured=-2.5e-7,
                    error=1e-15,
                    allowed=2.5e-13,
                ),
                entry(3, 3, math.inf, 1.0),
                entry(3, 4, -math.inf, 1.0),
            ),
            notes=("entries of row 3 are all infinite",),
        ),
        CheckResult(
            "forward_vs_backward",
            FAILED,
            "JVP and VJP disagree",
            findings=(entry(1, 2, 1.1, 1.0), entry(0, 15, 1.0000021, 1.0)),
        ),
        CheckResult("second_order", INCONCLUSIVE, "the point lies on a kink of 2 entries"),
    ),
    "not_a_number": report(
        CheckResult(
            "grad_metadata",
            FAILED,
            "1 gradient is not what it should be",
            findings=(
                Finding(
                    "grad_metadata",
                    "the gradient of input 0 'x' is float32 where float64 is expected, because "
                    "the backward casts it and never casts it back",
                    kind="dtype",
                    input=Place("x", 0, ()),
                ),
            ),
        ),
        CheckResult(
            "side_effects",
            FAILED,
            "2 side effects",
            findings=(
                Finding("side_effects", "the backward wrote into its cotangent", kind="cotangent"),
                Finding("side_effects", "the global random state changed", kind="random"),
            ),
        ),
    ),
    "kinks": report(
        CheckResult(
            "backward",
            PASSED,
            "10 x 10 Jacobian, not differentiable in 10 outputs; verified at smooth neighbours",
            notes=("not differentiable at 10 entries; verified at a smooth neighbour",),
            kinks=tuple(kink(i) for i in range(10)),
        ),
        CheckResult("forward", PASSED, "the same", kinks=tuple(kink(i) for i in range(10))),
    ),
    "inconclusive": report(
        CheckResult(
            "backward",
            INCONCLUSIVE,
            "the error bar, 0.3 of the derivative, is wider than the resolution asked for, 0.01; "
            "the function looks noisy: check it in float64, or give a reference",
            notes=("float32 computes to 6e-8", "the step chosen is 0.25"),
        ),
        FORWARD_SKIPPED,
    ),
    "few_bits_wrong": report(
        CheckResult(
            "backward",
            FAILED,
            f"2 arrays off by more than rounding explains, against {SAME}",
            findings=(
                Finding(
                    "backward",
                    f"gradient of x[7, 0] against {SAME}: row slope off by 1, rounding explains "
                    "0.031; also slope; x[7, 3] claimed 0, exact 0.24077",
                    kind="precision",
                    input=Place("x", 0, (7, 3)),
                    claimed=0.0,
                    measured=0.24077,
                    error=0.0,
                    allowed=0.031,
                ),
            ),
            reference=SAME,
            refused=("the reference in float64: it returns another value",),
            statistics=(
                *statistics("x", slope=11.7, row_slope=128.0, worst_entry=math.inf),
                *statistics("weight"),
                *statistics("bias", mean=math.nan),
            ),
        ),
    ),
    "few_bits_in_many_arrays": report(
        CheckResult(
            "backward",
            PASSED,
            f"verified to 3e-11, against {SAME}; the claims agree with it to 7e-03",
            reference=SAME,
            statistics=tuple(row for k in range(5) for row in statistics(f"layer{k}.weight")),
        ),
    ),
    "all_skipped": report(FORWARD_SKIPPED, calls={}, outputs=(), inputs=()),
    "no_checks": report(),
}
