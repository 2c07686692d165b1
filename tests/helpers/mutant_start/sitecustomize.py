"""Python imports this as a process starts: one that a mutated test starts has the
mutation as well.
"""

from helpers.mutant import apply_mutant

apply_mutant()
