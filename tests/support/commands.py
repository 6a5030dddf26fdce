"""The command line as a test calls it: in this process, with what it printed and its exit code."""

import contextlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox.cli import main


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error of a command that failed with --json."""
        return self.json["error"]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line in a folder, with a configuration file there."""

    folder: Path
    config: Path

    def __call__(self, *arguments: str) -> Result:
        """Run one command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--config", str(self.config), *arguments])
        return Result(code, out.getvalue(), err.getvalue())

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run one that must end with this exit code, with --json; returns what it prints."""
        result = self(*arguments, "--json")
        assert result.code == code, result
        return result.json

    def refused(self, *arguments: str, code: int) -> Any:
        """Run one that must end with this exit code, with --json; returns its error."""
        result = self(*arguments, "--json")
        assert result.code == code, result
        return result.error


def whoami() -> str:
    """The user that acts of this process are recorded with."""
    import pwd
    import socket

    return f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
