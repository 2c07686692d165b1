"""P1 for text: masked-language-model pre-training (Devlin et al. 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.schema import PretrainConfig
from fedaux.core.rng import derive_seed, seeded_torch
from fedaux.data.records import Indices, Records
from fedaux.models.text import TextExtractor
from fedaux.pretraining.metrics import FeatureQuality, feature_quality
from fedaux.pretraining.trainer import SelfSupervisedTask, autocast

MASKED = 0.15  # of the tokens are to be guessed; BERT's own shares, here and below
KEPT, RANDOM = 0.1, 0.1  # of those stay as they are, or become any other token; the rest becomes [MASK]


def mask_tokens(
    ids: Tensor, special: Tensor, mask_id: int, vocabulary: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(ids with some tokens hidden, which ones must be guessed), both (B, L). Special tokens are never chosen."""
    chosen = (torch.rand(ids.shape, generator=generator) < MASKED) & ~special
    fate = torch.rand(ids.shape, generator=generator)
    others = torch.randint(vocabulary, ids.shape, generator=generator)
    hidden = torch.where(fate < KEPT, ids, torch.where(fate < KEPT + RANDOM, others, mask_id))
    return torch.where(chosen, hidden, ids), chosen


class MaskedLMHead(nn.Module):
    """BERT's head over the vocabulary. Its last layer is the word embedding itself, which it does not own."""

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        vocabulary, width = words.weight.shape
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.transform(hidden), words, self.bias)


class MaskedLanguageModel(SelfSupervisedTask):
    """Guess the hidden tokens of a text from the others."""

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
            self.guess = MaskedLMHead(extractor.encoder.get_input_embeddings())  # type: ignore[operator]
        super().__init__(extractor, self.guess, aux, config, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """In one pass, or with `micro_batch_size` in parts whose gradients add up to the same."""
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        hidden, chosen = self._mask(ids, generator)
        count, total = max(1, int(chosen.sum())), 0.0
        size = self.config.micro_batch_size or len(ids)
        for part, start in enumerate(range(0, len(ids), size)):
            some = slice(start, start + size)
            if not chosen[some].any():
                continue
            with seeded_torch(derive_seed(seed, part)), autocast(self.config.precision, self.device):
                states = self.text.hidden_states(hidden[some], mask[some])[
                    chosen[some]
                ]  # only what is asked for is guessed
                logits = self.guess(states, self.text.encoder.get_input_embeddings().weight).float()  # type: ignore[operator]
            loss = F.cross_entropy(logits, ids[some][chosen[some]], reduction="sum") / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        """Two maskings of a text are its two views."""
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        first, second = (self.text.pool(self._mask(ids, generator)[0], mask).float().cpu() for _ in range(2))
        return feature_quality(first, second)

    def _mask(self, ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """On the CPU, where the generator is."""
        ids = ids.cpu()
        special = torch.isin(ids, self.special)
        hidden, chosen = mask_tokens(ids, special, self.mask_id, self.vocabulary, generator)
        return hidden.to(self.device), chosen.to(self.device)
