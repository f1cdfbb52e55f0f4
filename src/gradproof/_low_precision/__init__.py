"""Derivatives in few bits: held against a reference in double precision, by one rule."""
