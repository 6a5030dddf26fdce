"""Files that another process waits for."""

from pathlib import Path

import pytest

from outbox.demo.files import write_at_once


def test_whoever_waits_for_a_file_finds_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is there when the text is, and not before: a DSN of no characters leads to some other database."""
    place, written = tmp_path / "dsn", Path.write_text
    seen: list[bool] = []

    def looked_at(path: Path, text: str, encoding: str) -> int:
        done = written(path, text[:1], encoding=encoding)
        seen.append(place.exists())
        return done + written(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", looked_at)
    write_at_once(place, "postgresql:///outbox")
    assert (seen, place.read_text()) == ([False], "postgresql:///outbox")
    assert list(tmp_path.iterdir()) == [place]
