"""Places and causes of a failure, from its findings and measured entries alone.

`explain.py` is the entrance. `place.py` and `coordinates.py` put into words which entries are
wrong. Causes: `entries.py` has the table of those that measured entries show, whose recognisers
are in `factors.py`, `expressions.py`, `orders.py` and `sums.py` and look at a `JacobianEvidence`,
or at the `InputBlock` of one input (`case.py`); `explain.py` has what other checks find;
`causes.py` the advice.
"""
