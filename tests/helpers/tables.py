"""A run of seconds, as a table."""

TINY = {
    "rounds": 2,
    "prototypes": [{"name": "mlp", "features": 8, "hidden": 8}],
    "data": {"clients": 3},
    "aux": {"limit": 100},
    "pretrain": {"epochs": 0},
}
