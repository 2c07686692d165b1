"""Messages between server and clients, each declared once: orders one way, replies the
other.

`declaration` says how, `orders` and `replies` are the messages. `identity`, `checks`
and `plan` follow from the declarations, and so do serialization
(`flower.serialization`) and the privacy statement (`privacy.ledger`).
"""

from fedaux.messages.checks import (
    InvalidReplyError,
    check_order,
    check_reply,
    largest_reply,
)
from fedaux.messages.declaration import ORDERS, Disclosure, Part, Protection, fields_of
from fedaux.messages.federation import Federation, Reply
from fedaux.messages.identity import identity, question
from fedaux.messages.orders import (
    MESSAGE_VERSION,
    DataOrder,
    EveryOrder,
    HelloOrder,
    LookOrder,
    Order,
    PlanOrder,
    PrepareOrder,
    SumOrder,
    SumsOrder,
    SumTerms,
    Teaching,
    TrainOrder,
)
from fedaux.messages.plan import RunPlan, plan_of
from fedaux.messages.replies import (
    Answer,
    Consent,
    Counts,
    Hello,
    Masked,
    Release,
    SecureTotal,
    Subtotal,
    SumReply,
    Sums,
    Update,
    answer_type,
)
from fedaux.messages.tallies import Tallies, Tally

__all__ = [
    "MESSAGE_VERSION",
    "ORDERS",
    "Answer",
    "Consent",
    "Counts",
    "DataOrder",
    "Disclosure",
    "EveryOrder",
    "Federation",
    "Hello",
    "HelloOrder",
    "InvalidReplyError",
    "LookOrder",
    "Masked",
    "Order",
    "Part",
    "PlanOrder",
    "PrepareOrder",
    "Protection",
    "Release",
    "Reply",
    "RunPlan",
    "SecureTotal",
    "Subtotal",
    "SumOrder",
    "SumReply",
    "SumTerms",
    "Sums",
    "SumsOrder",
    "Tallies",
    "Tally",
    "Teaching",
    "TrainOrder",
    "Update",
    "answer_type",
    "check_order",
    "check_reply",
    "fields_of",
    "identity",
    "largest_reply",
    "plan_of",
    "question",
]
