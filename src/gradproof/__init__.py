"""gradproof proves or refutes a derivative.

`check` compares the derivative that a framework claims with what is measured, and returns a
`Report`; `compare` holds one implementation against another, value and derivatives;
`assert_derivatives` raises `DerivativeError` where the derivative is refuted. Importing this
package imports no framework, and NumPy only when a name that needs it is first used.
"""

import importlib as _importlib
import random as _random
import typing as _typing

from gradproof._data.by_hand import by_hand
from gradproof._data.frames import set_public_module as _set_public_module
from gradproof._data.records import (
    Cause,
    CheckResult,
    Finding,
    Kink,
    Place,
    Report,
    Statistic,
    Verdict,
)
from gradproof._data.settings import Settings
from gradproof._render import render as _render
from gradproof.errors import DerivativeError

if _typing.TYPE_CHECKING:
    from gradproof._asserts import assert_derivatives
    from gradproof._engine import check, compare
    from gradproof._maps.contract import Unsupported
    from gradproof._survey import Case, CaseResult, SurveyReport, survey

__all__ = [
    "Case",
    "CaseResult",
    "Cause",
    "CheckResult",
    "DerivativeError",
    "Finding",
    "Kink",
    "Place",
    "Report",
    "Settings",
    "Statistic",
    "SurveyReport",
    "Unsupported",
    "Verdict",
    "assert_derivatives",
    "by_hand",
    "check",
    "compare",
    "survey",
]

__version__ = "0.1.0"

# Name -> the module that is imported when it is first used: the pytest plugin is loaded in every
# run of pytest, and must not make those slower that check no derivative.
_LATER = {
    "assert_derivatives": "_asserts",
    **dict.fromkeys(("check", "compare"), "_engine"),
    "Unsupported": "_maps.contract",
    **dict.fromkeys(("Case", "CaseResult", "SurveyReport", "survey"), "_survey"),
}

Report.renderer = _render


for _name in set(__all__) - set(_LATER):
    _set_public_module(globals()[_name], __name__)


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    state = _random.getstate()  # Rich draws a number when it is imported
    try:
        found = getattr(_importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    finally:
        _random.setstate(state)
    globals()[name] = _set_public_module(found, __name__)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
