"""Claimed against measured derivatives in double precision: the law, and all that applies it."""
