"""gradproof proves or refutes a derivative.

`check` compares the derivative that a framework claims with what is measured, and returns a
`Report`; `assert_derivatives` raises `DerivativeError` where the derivative is refuted. Importing
this package imports no framework.
"""

from gradproof._engine import assert_derivatives, check
from gradproof._map import Unsupported
from gradproof._records import CheckResult, Finding, Report, Verdict
from gradproof._render import text as _text
from gradproof._settings import Settings
from gradproof.errors import DerivativeError

__all__ = [
    "CheckResult",
    "DerivativeError",
    "Finding",
    "Report",
    "Settings",
    "Unsupported",
    "Verdict",
    "assert_derivatives",
    "check",
]

__version__ = "0.1.0"

Report.renderer = _text.render
