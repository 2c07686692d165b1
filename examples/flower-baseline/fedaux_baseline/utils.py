"""What client and server must agree on."""

from fedaux_baseline.dataset import ALPHA, SEED

EPSILON = 1.0
STORE = f"~/.fedaux/baseline-alpha{ALPHA}-seed{SEED}"
"""The clients' accounts and the first weights. Another split needs other ones."""
