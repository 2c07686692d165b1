"""One round of FedDF with ResNet-8 of width 64 (20 MB) over N in-process clients;
prints the peak memory in MB.
"""

import resource
import sys
import tempfile

import torch

from fedaux import Config, run
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig, DataConfig, LocalConfig

torch.set_num_threads(1)
config = Config(
    method="feddf",
    rounds=1,
    prototypes=(PrototypeSpec("resnet8"),),
    data=DataConfig(clients=int(sys.argv[1]), partition="iid", test_fraction=0.7),
    aux=AuxConfig(limit=40, fraction=0.2),
    local=LocalConfig(batch_size=64),
    distill=DistillConfig(epochs=1),
)
with tempfile.TemporaryDirectory() as folder:
    assert not run(config, folder).state.history[0].failures
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
