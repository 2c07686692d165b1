"""Ready-made configurations. `fedaux demo` runs `DEMO`: scikit-learn's digits with about one class per client."""

from __future__ import annotations

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, DistillConfig, PretrainConfig, PrivacyConfig

# Local training is the paper's (one epoch, Adam 1e-3, batches of 32). The paper distils for one epoch at 5e-5, which
# suits tens of thousands of public images; here there are 575.
DEMO = Config(
    rounds=5,
    prototypes=(PrototypeSpec("cnn"),),
    data=DataConfig(source="digits", clients=10, alpha=0.01),
    aux=AuxConfig(fraction=0.5),
    pretrain=PretrainConfig(epochs=30, batch_size=256, min_crop_area=0.5, flip=False),
    distill=DistillConfig(epochs=5, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, delta=1e-5, embedding_dim=12),
)
