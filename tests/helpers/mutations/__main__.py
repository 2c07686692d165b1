"""`python -m helpers.mutations [NUMBER | NAME ...]`; see `helpers.mutations.runner`."""

import sys

from helpers.mutations.runner import main

sys.exit(main(sys.argv[1:]))
