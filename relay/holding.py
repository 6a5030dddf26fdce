"""A lane that this process holds, by the token and the fence of one acquisition."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One acquisition of a lane. Another one, also by the same process, has another owner and a higher fence."""

    receiver_id: int
    receiver: str
    lane: int
    fence: int
    owner: UUID

    @property
    def key(self) -> Key:
        """Which lane it is."""
        return self.receiver_id, self.lane

    @property
    def token(self) -> tuple[int, int, int]:
        """Which acquisition it is."""
        return self.receiver_id, self.lane, self.fence

    @property
    def parameters(self) -> dict[str, Any]:
        """What every statement compares: whose lane it is."""
        return {"receiver_id": self.receiver_id, "lane": self.lane, "fence": self.fence, "owner": self.owner}
