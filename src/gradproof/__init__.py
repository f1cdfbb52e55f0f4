"""gradproof proves or refutes a derivative.

`check` compares the derivative that a framework claims with what is measured, and returns a
`Report`; `assert_derivatives` raises `DerivativeError` where the derivative is refuted. Importing
this package imports no framework, and NumPy only when a name that needs it is first used.
"""

import importlib as _importlib
import typing as _typing

from gradproof._data.cases import case
from gradproof._data.planted import Strength as _Strength
from gradproof._data.records import CheckResult, Finding, Report, Verdict
from gradproof._data.reference import Reference
from gradproof._data.settings import Settings
from gradproof._render import render as _render
from gradproof._render.strength import render as _render_strength
from gradproof.errors import DerivativeError

if _typing.TYPE_CHECKING:
    from gradproof._asserts import assert_derivatives
    from gradproof._engine import check
    from gradproof._maps.contract import Unsupported

__all__ = [
    "CheckResult",
    "DerivativeError",
    "Finding",
    "Reference",
    "Report",
    "Settings",
    "Unsupported",
    "Verdict",
    "assert_derivatives",
    "case",
    "check",
]

__version__ = "0.1.0"

# Name -> the module that is imported when it is first used: the pytest plugin is loaded in every
# run of pytest, and must not make those slower that check no derivative.
_LATER = {"assert_derivatives": "_asserts", "check": "_engine", "Unsupported": "_maps.contract"}

Report.renderer = _render
_Strength.renderer = _render_strength


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
