"""Over the real transport, too, the server's memory does not grow with the number of
clients.
"""

import json
from pathlib import Path

import pytest

from helpers.harness import Servers


@pytest.mark.slow
def test_eighty_replies_of_20_mb_cost_hardly_more_than_ten(tmp_path: Path) -> None:
    with Servers(tmp_path / "servers", plain=True, database=False) as servers:
        servers.superlink()
        for name in "abc":
            servers.node(name, {"clients": name})
        servers.run(
            tmp_path,
            tmp_path / "found.json",
            server="helpers.big_replies:server",
            client="helpers.big_replies:client",
        )
        servers.finish(seconds=1500)
    found = json.loads((tmp_path / "found.json").read_text())
    print(found)
    assert found["10"]["mean"] == pytest.approx(sum(range(10)) / 1000)
    assert found["80"]["mean"] == pytest.approx(sum(range(80)) / 8000)
    assert found["80"]["peak"] < found["10"]["peak"] + 60
