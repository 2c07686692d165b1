"""Attacks by one text on what the others contribute: its length, or a label that nobody declared."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.deploy.audit.attack_result import AttackResult, AuditConfig, empirical_epsilon
from fedaux.deploy.audit.records import scores, values_of, with_fewer_draws
from fedaux.deploy.audit.site import Server, Site

WORDS = ("good", "film", "but", "far", "too", "long", "for", "me", "now")
MISSING = "transformers is not installed: pip install 'fedaux[text]'"
Rows = Sequence[tuple[str, str]]  # (label, text)


def text_length(folder: Path, terms: AuditConfig) -> AttackResult:
    """The embedding of the padding is NaN: a text beside a longer one would become NaN, and count for nothing."""
    name, attacked, terms = "text-length", "the length of one text, on the features of others", with_fewer_draws(terms)
    if not text_works():
        return AttackResult.skip(name, attacked, MISSING)
    rows = [("flu", "good")] * 32
    sites = _sites(folder, terms, short=[*rows, ("flu", "good")], long=[*rows, ("flu", " ".join(WORDS))])
    server = Server.against(sites[0], (), 2)
    text: Any = server.model.features
    with torch.no_grad():
        text.encoder.embeddings.word_embeddings.weight[text.tokenizer.pad_token_id] = float("nan")
    order = server.prepare(server.map(mean=-1e6))  # φ is +1 for every row that is finite
    bound = empirical_epsilon([values_of(site, order) for site in sites], terms)
    return AttackResult.of(name, attacked, terms.epsilon, bound, terms.draws, "one of 33 texts, of 1 word or of 9")


def new_label(folder: Path, terms: AuditConfig) -> AttackResult:
    """A record whose label nobody declared: numbered from the records, it would renumber all others."""
    name, attacked, terms = "new-label", "a label that is not declared, on those of others", with_fewer_draws(terms)
    if not text_works():
        return AttackResult.skip(name, attacked, MISSING)
    rows = [(label, "good film") for label in ("cold", "flu") for _ in range(16)]
    sites = _sites(folder, terms, known=[*rows, ("flu", "good")], new=[*rows, ("aids", "good")])
    server = Server.against(sites[0], (), 2)
    order = server.prepare(server.map(mean=-1e6))
    bound = empirical_epsilon([values_of(site, order) for site in sites], terms)
    return AttackResult.of(name, attacked, terms.epsilon, bound, terms.draws, "one of 33 records in a .csv")


def text_works() -> bool:
    return importlib.util.find_spec("transformers") is not None


def write_csv(path: Path, rows: Rows) -> Path:
    """A table of a site's own, with its two classes declared beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["label,text", *(",".join(row) for row in rows)]), encoding="utf-8")
    (path.parent / "classes.txt").write_text("cold\nflu", encoding="utf-8")
    return path


def _sites(folder: Path, terms: AuditConfig, **tables: Rows) -> list[Site]:
    words = _tokenizer(folder / "words")
    spec = PrototypeSpec.of("bert", layers=1, width=12, heads=2, inner=8, length=16, tokenizer=str(words))
    tables_at = [write_csv(folder / which / "table.csv", rows) for which, rows in tables.items()]
    return [Site.at(one, spec, source="csv", **scores(terms)) for one in tables_at]


def _tokenizer(folder: Path) -> Path:
    """A vocabulary of a dozen words: reading a real one would take longer than the attack."""
    transformers = importlib.import_module("transformers")
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    return folder
