"""`gradproof.check` with one flat table of options, as parametrised and fuzzed tests have them."""

from __future__ import annotations

from typing import Any

import gradproof

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp", "args")
SETTINGS = ("references", "accumulate", "masked", "full_jacobian")


def check(fn: Any, inputs: Any, *more: Any, **options: Any) -> gradproof.Report:
    """The report; derivatives by hand are joined with the function, others are settings."""
    claims = {name: options.pop(name) for name in CLAIMS if name in options}
    rare = {name: options.pop(name) for name in SETTINGS if name in options}
    if claims:
        fn = gradproof.by_hand(fn, **claims)
    if rare:
        options["settings"] = gradproof.Settings(**rare)
    return gradproof.check(fn, inputs, *more, **options)
