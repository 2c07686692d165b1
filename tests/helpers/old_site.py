"""The client app of a federation in which one site is a version behind: it reads and writes the messages of before."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.flower.client_app import app as current
from helpers.previous_version import as_previous

NAME = "client-000"


class OneOldSite(ClientApp):
    """Flower sends one app to all nodes; which site this is, its own settings say."""

    def __call__(self, message: Message, context: Context) -> Message:
        site = as_previous(current) if context.node_config["clients"] == NAME else current
        return site(message, context)


app = OneOldSite()
