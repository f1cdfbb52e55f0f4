"""Checks the layer norm of wrong_layer_norm.py, and writes what was found as a page."""

import argparse
from pathlib import Path

import torch
from wrong_layer_norm import layer_norm

import gradproof

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", default="build/wrong_layer_norm.html")
file = Path(parser.parse_args().file)

generator = torch.Generator().manual_seed(0)
inputs = tuple(
    torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    for shape in ((8, 16), (16,), (16,))
)
file.parent.mkdir(parents=True, exist_ok=True)
print(gradproof.check(layer_norm, inputs, seed=0).save(file).resolve())
