"""Numerical differentiation: steps, random directions, values of F, and slopes with error bars."""
