"""The tables of teachers and distillation refuse what makes no sense, and name the key
and what is allowed.
"""

import pytest

from fedaux.config.distillation import TeachersConfig
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config

CHECKS = [
    ("distill.epochs=-1", "distill.epochs must be at least 0"),
    ("distill.batch_size=0", "distill.batch_size must be at least 1"),
    ("distill.lr=0", "distill.lr must be above 0"),
    ("teachers.weights=odd", "did you mean 'odds'?"),
    ("distill.lr=inf", "distill.lr must be above 0"),
    ("teachers.weights=certain", "Choose from odds, certainty"),
    ("distill.steps=-1", "distill.steps must be at least 0"),
    ("teachers.run_on=nobody", "Choose from server, clients"),
    ("teachers.examples=-1", "teachers.examples must be at least 0, not -1"),
]


@pytest.mark.parametrize(
    ("override", "fragment"), CHECKS, ids=[override for override, _ in CHECKS]
)
def test_every_check_says_what_is_wrong(override: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict({}, [override])
    assert fragment in str(caught.value)


def test_a_limited_share_needs_a_server_that_sees_all_teachers() -> None:
    with pytest.raises(
        ConfigError, match=r"max_share below 1 needs teachers\.run_on = 'server'"
    ):
        TeachersConfig(max_share=0.5, run_on="clients")
    assert TeachersConfig(max_share=1.0, run_on="clients").run_on == "clients"


def test_standing_teachers_need_a_server_that_runs_them() -> None:
    with pytest.raises(
        ConfigError, match=r"teachers\.standing needs teachers\.run_on = 'server'"
    ):
        TeachersConfig(standing=True, run_on="clients")
