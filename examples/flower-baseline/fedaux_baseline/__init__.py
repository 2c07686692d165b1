"""A Flower baseline of FedAUX."""
