"""What a function answered while a test ran."""

from __future__ import annotations

from typing import Any

import pytest


def answers_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """All answers of a module's function from now on, which is called as before."""
    real, answers = getattr(module, name), []

    def noted(*arguments: Any, **options: Any) -> Any:
        answers.append(real(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(module, name, noted)
    return answers
