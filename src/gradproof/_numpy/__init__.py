"""Derivatives written by hand, of functions of NumPy or of any array library."""
