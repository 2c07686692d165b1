"""FedAUX and the private head for a Flower app that exists already: a strategy for its
server, a handler for clients.

    # instead of FedAvg()
    strategy = FedAUX(model=Net(), features="features", public=images, classes=10)
    add_release_handler(
        app,
        model=Net,
        features="features",
        data=own_data,
        epsilon=1.0,
        vault="~/.fedaux/vault",
    )

What a client releases is made by the same code as in fedaux's own apps, so the same
proofs hold.
"""

from fedaux.flower.dropin_client import add_release_handler
from fedaux.flower.private_head import PrivateHead
from fedaux.flower.strategy import FedAUX
from fedaux.flower.user_model import input_of

__all__ = ["FedAUX", "PrivateHead", "add_release_handler", "input_of"]
