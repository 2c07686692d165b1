"""P1 for text: what is hidden, the loss against the whole softmax, and pre-training
that learns and repeats.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.sources import open_source
from fedaux.models import Prototype, build, flatten_state
from fedaux.models.pretraining.trainer import pretrain
from helpers.tiny_text import publish_encoder, write_texts

pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")

from fedaux.models.pretraining.tasks import MaskedLanguageModel, mask_tokens


def test_tokens_are_hidden_in_berts_shares_and_special_ones_never() -> None:
    ids = torch.full((1000, 100), 7)
    ids[:, 0] = 2
    hidden, chosen = mask_tokens(ids, ids == 2, 4, 50, torch.Generator().manual_seed(0))
    assert not chosen[:, 0].any()
    assert torch.equal(hidden[~chosen], ids[~chosen])
    share = chosen[:, 1:].float().mean().item()
    fates = hidden[chosen]
    assert share == pytest.approx(0.15, abs=0.005)
    assert (fates == 4).float().mean().item() == pytest.approx(0.8 + 0.1 / 50, abs=0.01)
    assert (fates == 7).float().mean().item() == pytest.approx(0.1 + 0.1 / 50, abs=0.01)
    assert len(fates.unique()) == 50


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(publish_encoder(tmp_path_factory.mktemp("hf") / "tiny"))


def task(
    tokenizer: str, tmp_path: Path, **settings: object
) -> tuple[Prototype, MaskedLanguageModel]:
    torch.set_num_threads(1)
    aux = open_source(
        "csv", write_texts(tmp_path / "aux.csv", 200, seed=1), label=""
    ).train
    model = build(
        PrototypeSpec.of(
            "bert", layers=1, width=16, heads=2, inner=32, tokenizer=tokenizer
        ),
        (),
        3,
        seed=0,
    )
    config = PretrainConfig(**{"epochs": 15, "batch_size": 25, "lr": 1e-2, **settings})  # type: ignore[arg-type]
    return model, MaskedLanguageModel(model.features, model.width, aux, config, seed=5)


def test_the_loss_is_that_of_the_whole_softmax_over_hidden_tokens(
    tokenizer: str, tmp_path: Path
) -> None:
    _, mlm = task(tokenizer, tmp_path)
    mlm.model.eval()
    ids, mask = mlm.text.tokenize(mlm.aux.gather(np.arange(50)))
    generator = torch.Generator().manual_seed(3)
    hidden, chosen = mask_tokens(
        ids, torch.isin(ids, mlm.special), mlm.mask_id, mlm.vocabulary, generator
    )
    with torch.no_grad():
        states = mlm.text.encoder(
            input_ids=hidden, attention_mask=mask
        ).last_hidden_state
        words = mlm.text.encoder.get_input_embeddings().weight
        logits = mlm.lm_head.transform(states) @ words.T + mlm.lm_head.bias
        naive = F.cross_entropy(
            logits.flatten(0, 1), torch.where(chosen, ids, -100).flatten()
        )
    assert mlm.backward(
        np.arange(50), torch.Generator().manual_seed(3), seed=0
    ) == pytest.approx(naive.item(), rel=1e-5)


def test_a_batch_in_parts_has_the_gradient_of_the_whole(
    tokenizer: str, tmp_path: Path
) -> None:
    found = []
    for chunk in (0, 7):
        _, mlm = task(tokenizer, tmp_path, micro_batch_size=chunk)
        mlm.model.eval()  # dropout draws by part
        loss = mlm.backward(np.arange(50), torch.Generator().manual_seed(3), seed=0)
        found.append(
            (
                loss,
                torch.cat(
                    [
                        p.grad.flatten()
                        for p in mlm.model.parameters()
                        if p.grad is not None
                    ]
                ),
            )
        )
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-6)


def test_pretraining_learns_and_a_checkpoint_goes_on_to_the_same_bits(
    tokenizer: str, tmp_path: Path
) -> None:
    whole, mlm = task(tokenizer, tmp_path)
    curve = pretrain(mlm)
    assert curve[-1].loss < curve[0].loss - 0.1
    _, part = task(tokenizer, tmp_path)
    for _ in range(5):
        part.run_epoch()
    part.save(tmp_path / "checkpoint")
    fresh, rest = task(tokenizer, tmp_path)
    again = pretrain(rest, checkpoint=tmp_path / "checkpoint")
    assert [(one.loss, one.quality) for one in again] == [
        (one.loss, one.quality) for one in curve
    ]
    assert (
        flatten_state(whole)["parameters"].tobytes()
        == flatten_state(fresh)["parameters"].tobytes()
    )


def test_a_network_that_cannot_read_is_refused_with_the_way_out(tmp_path: Path) -> None:
    aux = open_source(
        "csv", write_texts(tmp_path / "aux.csv", 10, seed=1), label=""
    ).train
    with pytest.raises(ValueError, match="'bert' or 'encoder'"):
        MaskedLanguageModel(torch.nn.Identity(), 4, aux, PretrainConfig(), seed=0)
