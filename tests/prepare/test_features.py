import numpy as np
import torch

from fedaux.data.records import Records
from fedaux.prepare.features import fingerprint, outputs


def test_outputs_are_the_modules_own_block_by_block() -> None:
    rows = Records(np.random.default_rng(0).normal(size=(1100, 4)).astype(np.float32))
    module = torch.nn.Linear(4, 3)
    with torch.no_grad():
        naive = module(rows.tensor()).numpy()
    assert np.allclose(outputs(module, rows), naive, atol=1e-6)
    assert np.allclose(outputs(module, rows, lambda block: block[:, :2] * 2), 2 * naive[:, :2], atol=1e-6)


def test_a_fingerprint_knows_rows_order_and_facts() -> None:
    x = np.arange(40, dtype=np.uint8).reshape(10, 4)
    one = fingerprint(Records(x), "a", 1)
    assert one == fingerprint(Records(np.vstack([x, x])).take(np.arange(10)), "a", 1)
    changed = x.copy()
    changed[3, 3] += 1
    others = {
        fingerprint(Records(x[::-1]), "a", 1),
        fingerprint(Records(changed), "a", 1),
        fingerprint(Records(x), "a", 2),
    }
    assert len(others | {one}) == 4
