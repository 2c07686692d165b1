"""A trained network on its own: exported with a card, loaded again, asked for predictions."""
