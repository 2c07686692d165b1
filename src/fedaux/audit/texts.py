"""Attacks by one text on what the others contribute: its length, or an undeclared label."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedaux.audit.attack_result import AttackResult, AttackSkipped, AuditConfig, distinguish
from fedaux.audit.records import scores
from fedaux.audit.site import Server, Site
from fedaux.config.prototype import PrototypeSpec

WORDS = ("good", "film", "but", "far", "too", "long", "for", "me", "now")
Rows = Sequence[tuple[str, str]]  # (label, text)


def text_length(folder: Path, audit: AuditConfig) -> AttackResult:
    """The embedding of the padding overflows: a text beside a longer one would become NaN, and count for nothing."""
    rows = [("flu", "good")] * 32
    sites = _sites(folder, audit, short=[*rows, ("flu", "good")], long=[*rows, ("flu", " ".join(WORDS))])
    server = Server.against(sites[0], (), 2)
    text: Any = server.model.features
    with torch.no_grad():
        text.encoder.embeddings.position_embeddings.weight.fill_(2e38)  # twice that is infinite
        text.encoder.embeddings.word_embeddings.weight[text.tokenizer.pad_token_id] = 2e38
    order = server.prepare(server.map(mean=-1e6))  # φ is +1 for every row that is finite
    draws = [partial(site.values, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), "one of 33 texts, of 1 word or of 9")


def new_label(folder: Path, audit: AuditConfig) -> AttackResult:
    """A record with an undeclared label: if classes were numbered from the records, it would renumber all others."""
    rows = [(label, "good film") for label in ("cold", "flu") for _ in range(16)]
    sites = _sites(folder, audit, known=[*rows, ("flu", "good")], new=[*rows, ("aids", "good")])
    server = Server.against(sites[0], (), 2)
    order = server.prepare(server.map(mean=-1e6))
    draws = [partial(site.values, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), "one of 33 records in a .csv")


def write_csv(path: Path, rows: Rows) -> Path:
    """A site's table, with its two classes declared beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["label,text", *(",".join(row) for row in rows)]), encoding="utf-8")
    (path.parent / "classes.txt").write_text("cold\nflu", encoding="utf-8")
    return path


def _sites(folder: Path, audit: AuditConfig, **tables: Rows) -> list[Site]:
    spec = text_prototype(folder / "words")
    paths = [write_csv(folder / which / "table.csv", rows) for which, rows in tables.items()]
    return [Site.at(path, spec, source="csv", **scores(audit)) for path in paths]


def text_prototype(folder: Path) -> PrototypeSpec:
    """A network for texts as small as can be, with its vocabulary in a new folder."""
    tokenizer = _tokenizer(folder)
    return PrototypeSpec.of("bert", layers=1, width=12, heads=2, inner=8, length=16, tokenizer=str(tokenizer))


def _tokenizer(folder: Path) -> Path:
    """A vocabulary of a dozen words: loading a real one would take longer than the attack."""
    try:
        transformers = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise AttackSkipped("transformers is not installed: pip install 'fedaux[text]'") from error
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    return folder
