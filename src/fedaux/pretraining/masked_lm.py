"""P1 for text: masked-language-model pre-training (Devlin et al. 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.sections import PretrainConfig
from fedaux.core.rng import derive_seed, seeded_torch
from fedaux.data.records import Indices, Records
from fedaux.models.text import TextExtractor
from fedaux.pretraining.metrics import FeatureQuality, feature_quality
from fedaux.pretraining.trainer import SelfSupervisedTask

MASKED = 0.15  # fraction of tokens to predict; this and the next are BERT's
KEPT, RANDOM = 0.1, 0.1  # fractions of those left unchanged, or replaced by a random token; the rest becomes [MASK]


def mask_tokens(
    ids: Tensor, special: Tensor, mask_id: int, vocabulary: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(masked ids, which tokens to predict), both (B, L). Special tokens are never selected."""
    selected = (torch.rand(ids.shape, generator=generator) < MASKED) & ~special
    draw = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocabulary, ids.shape, generator=generator)
    masked = torch.where(draw < KEPT, ids, torch.where(draw < KEPT + RANDOM, random_ids, mask_id))
    return torch.where(selected, masked, ids), selected


class MaskedLMHead(nn.Module):
    """BERT's prediction head; its output layer is tied to the word embedding, which stays with the encoder."""

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        vocabulary, width = words.weight.shape
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.transform(hidden), words, self.bias)


class MaskedLanguageModel(SelfSupervisedTask):
    """Predict the masked tokens of a text."""

    def __init__(self, extractor: nn.Module, width: int, aux: Records, config: PretrainConfig, seed: int) -> None:
        if not isinstance(extractor, TextExtractor):
            raise ValueError(
                f"the auxiliary data are text, which {type(extractor).__name__} cannot be pre-trained on; "
                "choose the prototype 'bert' or 'encoder'"
            )
        self.text, tokenizer = extractor, extractor.tokenizer
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))
        self.mask_id, self.vocabulary = int(tokenizer.mask_token_id), len(tokenizer)
        with seeded_torch(derive_seed(seed, "guess")):
            self.lm_head = MaskedLMHead(extractor.encoder.get_input_embeddings())  # type: ignore[operator]
        super().__init__(extractor, self.lm_head, aux, config, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """In one pass, or with `micro_batch_size` by gradient accumulation."""
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        masked, selected = self._mask(ids, generator)
        count, total = max(1, int(selected.sum())), 0.0
        size = self.config.micro_batch_size or len(ids)
        for index, start in enumerate(range(0, len(ids), size)):
            part = slice(start, start + size)
            if not selected[part].any():
                continue
            embedding = self.text.encoder.get_input_embeddings().weight  # type: ignore[operator]
            with seeded_torch(derive_seed(seed, index)), self.compute.autocast():
                states = self.text.hidden_states(masked[part], mask[part])[selected[part]]
                logits = self.lm_head(states, embedding).float()
            loss = F.cross_entropy(logits, ids[part][selected[part]], reduction="sum") / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        """Two maskings of a text are its two views (`feature_quality`)."""
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        first, second = (self.text.pool(self._mask(ids, generator)[0], mask).float().cpu() for _ in range(2))
        return feature_quality(first, second)

    def _mask(self, ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`mask_tokens` on the CPU, where the generator is."""
        ids = ids.cpu()
        special = torch.isin(ids, self.special)
        masked, selected = mask_tokens(ids, special, self.mask_id, self.vocabulary, generator)
        return self.compute.put(masked), self.compute.put(selected)
