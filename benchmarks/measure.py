"""What a measurement is: two things done in turns in one run, their medians, and a goal."""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is done. `--quick`: a tenth; `--full`: the sizes of the goals, which take hours."""

    factor: float = 1.0
    full: bool = False
    rounds: int = 3

    def of(self, number: int, full: int | None = None) -> int:
        """A number of operations."""
        return full if self.full and full is not None else max(1, int(number * self.factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """
    One row of the table. `ours` and `theirs` are medians in `unit`; `value` is what the goal is about.

    `sense`: whether the goal is a lower or an upper bound of `value`. `goal` None: a figure without one.
    """

    measure: str
    against: str
    ours: float
    unit: str
    value: float
    value_unit: str
    goal: float | None = None
    sense: Literal[">=", "<="] = ">="
    theirs: float | None = None
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.sense == ">=" else self.value <= self.goal

    def document(self) -> dict[str, Any]:
        """As stored."""
        return {**asdict(self), "met": self.met}


def in_turns(rounds: int, *acts: Callable[[], float]) -> tuple[list[float], ...]:
    """A B A B: whatever else this machine does meets all of them."""
    samples: tuple[list[float], ...] = tuple([] for _ in acts)
    for _ in range(rounds):
        for act, found in zip(acts, samples, strict=True):
            found.append(act())
    return samples


def ratio(  # noqa: PLR0917 - as a row of the table is read
    measure: str,
    against: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    goal: float | None,
    note: str = "",
) -> Result:
    """A result whose value is ours / theirs."""
    a, b = statistics.median(ours), statistics.median(theirs)
    return Result(
        measure=measure,
        against=against,
        ours=a,
        theirs=b,
        unit=unit,
        value=a / b,
        value_unit="x",
        goal=goal,
        note=note,
        samples={"ours": list(ours), "theirs": list(theirs)},
    )


def figure(  # noqa: PLR0917 - as a row of the table is read
    measure: str, unit: str, samples: Sequence[float], goal: float | None = None, note: str = "", against: str = "-"
) -> Result:
    """A result that is a median by itself; its goal is an upper bound."""
    middle = statistics.median(samples)
    return Result(
        measure=measure,
        against=against,
        ours=middle,
        unit=unit,
        value=middle,
        value_unit=unit,
        goal=goal,
        sense="<=",
        note=note,
        samples={"ours": list(samples)},
    )


def machine() -> dict[str, Any]:
    """On what this was measured, and how busy that was with other things."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "cpu": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(memory) / 1e6, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
