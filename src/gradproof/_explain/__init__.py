"""Places and causes of a failure, from its findings and measured numbers alone.

`explain.py` is the entrance. `place.py` and `coordinates.py` put into words which entries are
wrong. Causes: `entries.py` has the table of those that measured entries show, whose recognisers
are in `factors.py`, `orders.py` and `sums.py` and look at a `Case` (`case.py`); `products.py` asks
them of products in few bits; `behaviour.py` has what other checks find; `causes.py` the advice.
"""
