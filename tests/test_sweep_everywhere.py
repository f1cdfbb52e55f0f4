"""sweep=True in every framework: a quotient that is wrong at an exact zero."""

from __future__ import annotations

import numpy as np
import pytest

from exhibits.portable import Portable
from portable_frames import FRAMES, INSTALLED

SLOW = {"jax": [pytest.mark.slow]}  # compiles every shape
everywhere = pytest.mark.parametrize(
    "framework", [pytest.param(each, marks=SLOW.get(each, [])) for each in INSTALLED]
)


QUOTIENT = Portable(
    name="product_divided_by_a_zero_entry",
    source="sweep",
    inputs=lambda: (np.array([2.0, 3.0, 5.0]),),
    value=lambda xp, x: xp.prod(x),
    wrong=lambda xp, g, x: (xp.where(x == 0, 0 * x, g * xp.prod(x) / xp.where(x == 0, 1 + x, x)),),
    right=lambda xp, g, x: (
        g
        * xp.stack(
            [xp.prod(xp.where(xp.arange(x.shape[0]) == k, 1 + 0 * x, x)) for k in range(x.shape[0])]
        ),
    ),
)


@everywhere
def test_a_sweep_finds_what_the_point_hides_and_spares_the_right_twin(framework):
    options = {"seed": 0, "sweep": True, "checks": ["backward"], "budget": 5000}
    report = FRAMES[framework](QUOTIENT, QUOTIENT.wrong, **options)
    assert report["backward"].verdict == "passed"
    assert report["sweep"].verdict == "failed", str(report)
    assert report["sweep"].summary.startswith("wrong at one zero (")
    assert "sweep=True" in report.repeat
    right = FRAMES[framework](QUOTIENT, QUOTIENT.right, **options)
    assert right["sweep"].verdict == "passed", str(right)
