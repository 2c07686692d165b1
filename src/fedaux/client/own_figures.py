"""What a site's owner sees of a test: exact figures of the federation's model on the
site's held-out records, and of a model that the site has trained alone.

They stay in the site's vault. Counts of a model that was trained on the site's records
without noise could not be sent under ε: one training record may change every prediction
(docs/proofs.md).
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedaux.client.loading import load_records
from fedaux.client.site import Site
from fedaux.core.io import write_atomically
from fedaux.data.records import Records
from fedaux.messages import LookOrder
from fedaux.models.inference import Rows
from fedaux.scoring.base import Labels

FOLDER_OF_TESTS = "tests"  # beside the account
ITERATIONS = 500  # of the solver, at most
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnFigures:
    """The exact result of one test at a site.

    Attributes:
        time: When the model was tested.
        run: The id of the run.
        records: How many records were held out.
        federation: The accuracy of the federation's model.
        alone: That of a linear model on the same features, which only the site's own
            records have trained; None in a run that trains whole networks.
        commonest: That of always answering the commonest class of the site's records.
    """

    time: str
    run: str
    records: int
    federation: float
    alone: float | None
    commonest: float

    @classmethod
    def read_all(cls, folder: Path) -> list[OwnFigures]:
        """Return the tests in a site's folder, oldest first."""
        paths = (folder / FOLDER_OF_TESTS).glob("*.json")
        tests = [cls(**json.loads(path.read_bytes())) for path in paths]
        return sorted(tests, key=lambda test: test.time)


def keep_own_figures(
    order: LookOrder, site: Site, held_out: Records, logits: Rows
) -> None:
    """Write the exact figures of a test into the site's vault, after the answer to the
    look is stored. If that fails, the look is answered all the same, because its answer
    must not depend on it.
    """
    try:
        figures = own_figures(order, site, held_out, logits)
        if figures is None:
            return
        folder = site.account_folder(order.client) / FOLDER_OF_TESTS
        name = f"{figures.time.replace(':', '')}-{order.client}.json"
        content = json.dumps(asdict(figures), indent=1).encode()
        write_atomically(folder / name, content, private=True)
    except Exception:
        log.exception("Cannot keep this site's results of the test.")
        return
    log.info("%s", in_words(figures))


def own_figures(
    order: LookOrder, site: Site, held_out: Records, logits: Rows
) -> OwnFigures | None:
    """Return the exact figures of a test; None without a labelled record."""
    labels = held_out.labels
    known = labels >= 0
    if not known.any():
        return None
    is_right = logits.argmax(axis=1)[known] == labels[known]
    trained = load_records(site, order)
    learned = trained.labels[trained.labels >= 0]
    classes = np.bincount(learned, minlength=order.classes)
    return OwnFigures(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        run=order.run,
        records=int(known.sum()),
        federation=float(is_right.mean()),
        alone=accuracy_alone(trained, held_out) if order.h0 else None,
        commonest=float((labels[known] == classes.argmax()).mean()),
    )


def accuracy_alone(trained: Records, held_out: Records) -> float | None:
    """Return the accuracy of a logistic regression that the site trains alone, on the
    features that the federation's head has: held-out records come with those of all
    records, of which both are rows.
    """
    features = replace(trained, x=held_out.x)
    return linear_accuracy(
        features.gather(), trained.labels, held_out.gather(), held_out.labels
    )


def linear_accuracy(
    x: Rows, y: Labels, held_out_x: Rows, held_out_y: Labels
) -> float | None:
    """Train on (x, y) and return the accuracy on held-out rows; None without any."""
    # importing scikit-learn takes a second, which most orders need not wait for
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    trained = (y >= 0) & np.isfinite(x).all(axis=1)
    tested = held_out_y >= 0
    if not trained.any() or not tested.any():
        return None
    held_out_x = np.nan_to_num(held_out_x[tested])
    if len(np.unique(y[trained])) == 1:  # there is nothing to tell apart
        return float((held_out_y[tested] == y[trained][0]).mean())
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    model.fit(x[trained], y[trained])
    return float((model.predict(held_out_x) == held_out_y[tested]).mean())


def in_words(figures: OwnFigures) -> str:
    """Return the figures in a sentence, for the site's own log."""
    alone = ""
    if figures.alone is not None:
        alone = f", trained alone {100 * figures.alone:.1f} %"
    return (
        f"On {figures.records} held-out records of this site, which the server is not "
        f"told exactly: the federation's model {100 * figures.federation:.1f} %{alone}, "
        f"the commonest class {100 * figures.commonest:.1f} %."
    )
