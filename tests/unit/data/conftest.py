import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test converts into a cache of its own."""
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
