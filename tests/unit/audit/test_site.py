"""The site that attacks are run against is a real one: it answers, remembers, refuses,
and forgets when told to.
"""

from pathlib import Path

import numpy as np
import pytest

from attacks.package.bounds import AuditConfig
from attacks.package.orders import (
    head_order,
    noisy_sum,
    score_order,
    scores,
    training,
    values,
)
from fedaux.audit.site import SITE_NAME, refused
from fedaux.flower.federation import read_reply
from fedaux.messages import Hello, HelloOrder
from helpers.audited_sites import IDENTITY, audited_site, write_rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "data", np.array([(1, 0), (0, 1), (1, 1)]), [0, 1, 0], ("a", "b")
    )


def test_it_says_who_it_is_and_which_classes_are_declared(data: Path) -> None:
    reply = read_reply(
        Hello,
        audited_site(data, IDENTITY, **scores(AuditConfig())).send(HelloOrder()),
    )
    assert (reply.clients, reply.classes) == (f'["{SITE_NAME}"]', '["a", "b"]')


def test_it_remembers_a_release_until_it_is_made_to_forget(data: Path) -> None:
    site = audited_site(data, IDENTITY, **scores(AuditConfig()))
    order = score_order(site)
    first = site.release(order).arrays["values"]
    assert np.array_equal(site.release(order).arrays["values"], first)
    assert refused(site.send(score_order(site, scale=2)))
    # a client with an empty account draws anew
    assert not np.array_equal(values(site, order), first)


def test_the_sum_behind_a_step_is_read_off_the_update(data: Path) -> None:
    """At huge ε there is hardly any noise: what comes back is the sum of clipped
    gradients.
    """
    site = audited_site(data, IDENTITY, **training(AuditConfig(epsilon=1000.0)))
    found = noisy_sum(site, head_order(site))
    x, y = np.array([(1, 0), (0, 1), (1, 1)]), np.array([0, 1, 0])
    error = np.array([0.5, 0.5]) - np.eye(2)[y]  # softmax of zero weights
    own = np.concatenate(
        [(error[:, :, None] * x[:, None, :]).reshape(3, -1), error], axis=1
    )
    naive = sum(row / max(1.0, np.linalg.norm(row)) for row in own)
    assert np.allclose(found, naive, atol=0.3)
