"""Many runs: grids of settings over seeds, several at a time, and what they have shown
together.
"""
