"""Layering the file, the environment and the flags, and reading what they say together."""

import contextlib
import os
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from outbox.contract.base import Part
from outbox.contract.check import problems
from outbox.contract.tool import ReceiverConfig, ReceiverName, ToolConfig, ToolName
from outbox.errors import ConfigError, Problem
from outbox.receivers.registry import transports
from outbox.settings.problems import Layers, did_you_mean, problems_of, unknown_variables
from outbox.settings.sections import DaemonSettings, DatabaseSettings, ReconcilerSettings, RelaySettings

FILE_NAME: Final = "outbox.toml"
FILE_VARIABLE: Final = "OUTBOX_CONFIG"
ENV_PREFIX: Final = "OUTBOX_"
# More than any hand-written file; a file of this size is something else, named by mistake.
FILE_BYTES_MAX: Final = 4 * 1024 * 1024

Loaded = TypeVar("Loaded", bound="Settings")


class Settings(BaseSettings):
    """Where the database is, and how the daemons run. Made by `load_settings`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )

    database: DatabaseSettings = DatabaseSettings()
    relay: RelaySettings = RelaySettings()
    reconciler: ReconcilerSettings = ReconcilerSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the names are pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what `load_settings` has layered, and read nothing behind its back."""
        return (init_settings,)

    @property
    def dsn(self) -> str:
        """The DSN of the CLI. ConfigError if there is none."""
        return self._needed(self.database.dsn)

    @property
    def relay_dsn(self) -> str:
        """The relay's own DSN, else the common one. ConfigError if there is neither."""
        return self._needed(self.relay.dsn or self.database.dsn)

    @property
    def reconciler_dsn(self) -> str:
        """The reconciler's own DSN, else the common one. ConfigError if there is neither."""
        return self._needed(self.reconciler.dsn or self.database.dsn)

    def address(self, kind: Literal["relay", "reconciler"]) -> str:
        """Say where the DSN of a daemon stands, for whoever has to correct it."""
        own, common = f"{ENV_PREFIX}{kind.upper()}__DSN", f"{ENV_PREFIX}DATABASE__DSN"
        section: DaemonSettings = getattr(self, kind)
        if section.dsn is not None:
            return f"The address is {own if os.environ.get(own) else f'[{kind}] dsn of the file'}."
        used = common if os.environ.get(common) else "[database] dsn of the file"
        return f"The address is {used}, since neither {own} nor [{kind}] dsn says another."

    def listening_dsn(self, dsn: str) -> str | None:
        """Where a daemon that works on `dsn` listens for notifications; None: it only polls."""
        if self.database.listen_dsn is not None:
            return self.database.listen_dsn
        return None if self.database.pooler else dsn

    @staticmethod
    def _needed(dsn: str | None) -> str:
        if dsn is None:
            raise ConfigError.at(
                "database.dsn",
                "no database is named",
                "missing",
                hint='Write [database] dsn = "postgresql://..." into the file, or set OUTBOX_DATABASE__DSN;'
                " `outbox dev` brings a database of its own.",
            )
        return dsn


class Configuration(Settings):
    """
    The whole file: settings, and the receivers and tools that `outbox apply` stores.

    Made by `load_configuration`.
    """

    receivers: dict[ReceiverName, ReceiverConfig] = Field(default_factory=dict, max_length=1_000)
    tools: dict[ToolName, ToolConfig] = Field(default_factory=dict, max_length=10_000)


def config_path(given: Path | None = None) -> tuple[Path, bool]:
    """The file to read: the given one, else OUTBOX_CONFIG, else `outbox.toml`; and whether somebody has named it."""
    if given is not None:
        return given, True
    named = os.environ.get(FILE_VARIABLE)
    return (Path(named), True) if named else (Path(FILE_NAME), False)


def load_settings(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """
    Read the settings of the daemons and the CLI. `overrides` is nested like the file, and wins over everything.

    Without a path: OUTBOX_CONFIG, else `outbox.toml` where it exists (an environment alone can be enough). Raises
    ConfigError with every problem; receivers and tools are not looked at.
    """
    return _load(Settings, path, overrides or {})


def load_configuration(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Configuration:
    """Read the whole file. ConfigError holds every problem, also those of contracts that contradict themselves."""
    return _load(Configuration, path, overrides or {})


def _contradictions(
    tools: Mapping[str, ToolConfig], receivers: Mapping[str, ReceiverConfig], declared: Collection[str]
) -> list[Problem]:
    """What the parts of a file say against each other. `declared` also holds receivers that are wrong by themselves."""
    found = []
    for name, receiver in receivers.items():
        if receiver.transport not in transports():
            meant = did_you_mean(receiver.transport, transports())
            message = f"no transport of this name is installed{meant}"
            found.append(Problem(f"receivers.{name}.transport", message, "unknown_transport"))
        if not receiver.allow_private_addresses and _is_private(receiver.base_url):
            message = "a private address: nothing is sent there without allow_private_addresses = true"
            found.append(Problem(f"receivers.{name}.base_url", message, "contradiction"))
    for name, tool in tools.items():
        found += _read_in_the_future(name, tool)
        if tool.receiver in receivers:
            found += problems(name, tool, receivers[tool.receiver])
        elif tool.receiver not in declared:
            message = f"no receiver has this name{did_you_mean(tool.receiver, declared)}"
            found.append(Problem(f'tools."{name}".receiver', message, "unknown_receiver"))
    return found


def _is_private(base_url: str | None) -> bool:
    """A host that is itself such an address. What a name resolves to is seen where it is called."""
    try:
        return ip_address(urlsplit(base_url or "").hostname or "").is_private
    except ValueError:
        return False


def _read_in_the_future(name: str, tool: ToolConfig) -> Iterator[Problem]:
    """Asked of a file and not of a stored version, which is right for as long as it is kept, whatever a clock says."""
    verified = tool.contract.verified_at if tool.contract else None
    # Somewhere it is tomorrow already.
    if verified is not None and verified > datetime.now(UTC).date() + timedelta(days=1):
        place = f'tools."{name}".contract.verified_at'
        yield Problem(place, "nobody can have verified it yet: this date is in the future", "contradiction")


def _valid(parts: Any, kind: type[Part]) -> dict[str, Any]:
    """Those of some named parts that are right by themselves: they can still contradict each other."""
    found = {}
    for name, given in parts.items() if isinstance(parts, Mapping) else ():
        with contextlib.suppress(ValidationError):
            found[name] = kind.model_validate(given)
    return found


def _load(kind: type[Loaded], path: Path | None, overrides: Mapping[str, Any]) -> Loaded:
    place, named = config_path(path)
    text = _read(place, named=named)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError.at(str(place), f"this is not TOML: {error}", "toml_syntax") from None
    if kind is Settings:
        document = {name: value for name, value in document.items() if name not in {"receivers", "tools"}}
    found = unknown_variables(os.environ, ENV_PREFIX, Configuration.model_fields)
    try:
        # Empty is not set: that is how compose passes on what nobody has set.
        environment = EnvSettingsSource(kind, env_ignore_empty=True)()
    except SettingsError as error:
        raise ConfigError([*found, Problem("environment", str(error), "env_syntax")]) from None
    layers = Layers(str(place), text, document, environment, overrides, ENV_PREFIX)
    return _validated(kind, layers, found)


def _validated(kind: type[Loaded], layers: Layers, found: list[Problem]) -> Loaded:
    data = layers.merged()
    loaded = None
    try:
        loaded = kind(**data)
    except ValidationError as error:
        found += problems_of(error, kind, layers)
    if kind is Configuration:
        receivers, tools = _valid(data.get("receivers"), ReceiverConfig), _valid(data.get("tools"), ToolConfig)
        found += layers.located(_contradictions(tools, receivers, data.get("receivers", {})))
    if loaded is None or found:
        named = "" if layers.file == FILE_NAME else f" --config {shlex.quote(layers.file)}"
        hint = f"docs/configuration.md has every name. To check it again: outbox{named} contracts --file"
        raise ConfigError(found, hint=hint)
    return loaded


def _read(path: Path, *, named: bool) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        if not named:
            return ""
        raise ConfigError.at(str(path), "there is no such file", "no_file", hint="To write one: outbox init") from None
    except OSError as error:
        raise ConfigError.at(str(path), f"it cannot be read ({error.strerror})", "no_file") from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError.at(str(path), f"more than {FILE_BYTES_MAX} bytes", "too_large")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError.at(str(path), "it is not UTF-8", "toml_syntax") from None
