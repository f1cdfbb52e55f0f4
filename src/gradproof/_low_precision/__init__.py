"""Derivatives in few bits: held against a reference in double precision, by one statistical rule.

A claim in float32, float16 or bfloat16 differs from the exact derivative by rounding. How much an
honest computation differs is measured: the reference is run with every operation rounded at random
to the few bits. Roundings of different entries are independent, a wrong formula is not, so that
weighted sums over entries show what no entry shows.
"""
