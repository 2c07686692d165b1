"""FedAUX whose clients take their time, without using the processor: time enough to be
killed in, whatever the load.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedaux import Hooks
from fedaux.config.methods import METHODS

SECONDS = "SLOW_TRAINING_SECONDS"  # in the environment, if others than these
USUAL = 12.0
# in the environment: where a file named by its process says that it has begun
FOLDER = "SLOW_TRAINING"


@dataclass(frozen=True)
class SlowStart(Hooks):
    def gradient_term(
        self,
        theta: Tensor,
        start: Tensor,
        received: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> None:
        if torch.equal(theta, start):  # the first step
            Path(os.environ[FOLDER], str(os.getpid())).touch()
            time.sleep(float(os.environ.get(SECONDS, USUAL)))


method = replace(METHODS["fedaux"], hooks=SlowStart)
