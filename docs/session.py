"""Records docs/session.svg, the terminal session of the README, by `make pictures`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from gradproof import Report, cli
from gradproof._render import json as codec
from gradproof._render import terminal

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "session.svg"
TARGET = "examples/wrong_layer_norm.py:layer_norm"
SPECS = ("float64[8,16]", "float64[16]", "float64[16]")
LINES = (f"gradproof check {TARGET} \\", "    " + " ".join(f'"{spec}"' for spec in SPECS))
COMMAND = "\n".join(LINES) + " --seed 0"

# Background and text; then black, red, green, yellow, blue, magenta, cyan, white.
THEME = TerminalTheme(
    (24, 27, 31),
    (222, 226, 230),
    [
        (24, 27, 31),
        (255, 131, 122),
        (121, 207, 151),
        (230, 179, 85),
        (125, 180, 236),
        (205, 160, 235),
        (110, 205, 215),
        (222, 226, 230),
    ],
)


def checked() -> Report:
    """What the command finds, by way of the file that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        cli.main(["check", TARGET, *SPECS, "--seed", "0", "--quiet", "--json", str(file)])
        [(_, report)] = codec.load_many(file.read_text("utf-8"))
        return replace(report, repeat=report.repeat.replace(f" --quiet --json {file}", ""))


def record() -> str:
    """The session as SVG: the command, and what it prints, in a terminal of 80 columns."""
    console = Console(
        record=True, width=80, force_terminal=True, color_system="standard", file=io.StringIO()
    )
    console.print(f"[bold green]$[/] {COMMAND}", highlight=False)
    console.print(terminal.OnTerminal(checked()), soft_wrap=True)
    svg = console.export_svg(title="gradproof", theme=THEME, unique_id="gradproof")
    # Rich names fonts on a server; the reader's own will do.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas")


if __name__ == "__main__":
    os.chdir(ROOT)
    FILE.write_text(record(), encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1024:.0f} KiB")
