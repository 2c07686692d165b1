"""A finished run: its last state, and the figures people ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaux.privacy.ledger import Ledger
from fedaux.server.collapse import collapse_warning
from fedaux.server.run_state import RunState


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: its last state, and the figures people ask for."""

    state: RunState
    folder: Path

    @property
    def curve(self) -> list[float]:
        """Test accuracy after each round, the mean over prototypes."""
        return [result.mean_accuracy for result in self.state.history]

    @property
    def accuracy(self) -> float:
        """After the last round: not the best round, which only the test labels could have chosen."""
        return self.curve[-1]

    @property
    def warning(self) -> str:
        """What is wrong with the model and what to try first; "" if it beats the commonest class and gives up none."""
        return collapse_warning(self.state)

    @property
    def statement(self) -> str:
        """What was promised to whom, and what is not covered: one paragraph that is true as it stands."""
        return self.ledger.statement()

    def to_dict(self) -> dict[str, Any]:
        """The figures of the run, for JSON."""
        ledger, config = self.ledger, self.state.config
        return {
            "folder": str(self.folder),
            "method": config.method,
            "seed": config.seed,
            "rounds": self.state.round,
            "accuracy": self.accuracy,
            "curve": self.curve,
            "prototypes": self.state.history[-1].accuracy,
            "metrics": self.state.history[-1].metrics,
            "warning": self.warning,
            "failed": sorted({failure.client for result in self.state.history for failure in result.failures}),
            "privacy": {"epsilon": ledger.max_epsilon or None, "delta": ledger.delta, "statement": self.statement},
        }

    @property
    def ledger(self) -> Ledger:
        """What the clients say they have spent."""
        return self.state.ledger
