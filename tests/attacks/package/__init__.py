"""Attacks on the package itself: a hostile server against the real handlers, with the ε
that it proves.

`attack(name, settings)` of `table` runs one of them.
"""
