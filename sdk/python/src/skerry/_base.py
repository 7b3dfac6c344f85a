"""What all models of the API have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """An answer of the API. Fields that a newer server adds are kept, not refused."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
