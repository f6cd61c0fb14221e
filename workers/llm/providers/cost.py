"""The cost of a call, from prices in `prices.toml` and a user's own file over them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).with_name("prices.toml")
_KEYS = {"prompt", "cached", "completion"}
# Providers answer with a dated name ("gpt-5-2025-08-07") where the undated one was asked for; the price is the same.
_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_TOML_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}
_EXPECTED = "US dollars per million tokens, from 0 to less than a million"


class PriceError(ValueError):
    """A price file that cannot be used.

    Names the file, the field, the type that was found and what was expected. It never quotes a value: that may be a key
    pasted by mistake, and the message goes to logs and to API clients.
    """


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens.

    `cached` is the price of prompt tokens that the provider had in its cache.
    """

    prompt: float
    completion: float
    cached: float | None = None


class Prices:
    """Prices by model name. An unknown model costs None: unknown is not free."""

    def __init__(self, prices: dict[str, Price]) -> None:
        self._prices = prices

    @classmethod
    def load(cls, override: Path | None = None) -> Prices:
        """Read the shipped prices, with those of `override` over them. Raises `PriceError`.

        `override` has the same format.
        """
        prices = _read(SHIPPED)
        if override is not None:
            prices |= _read(override)
        return cls(prices)

    def price(self, model: str | None) -> Price | None:
        """Return the price of `model`.

        By its name, without its vendor prefix ("openai/gpt-5") or without its date.
        """
        if model is None:
            return None
        for name in (model, model.rsplit("/", 1)[-1]):
            found = self._prices.get(name) or self._prices.get(_DATE.sub("", name))
            if found is not None:
                return found
        return None

    def cost(self, model: str | None, prompt: int | None, completion: int | None, cached: int = 0) -> float | None:
        """Compute the US dollars of one call; None where the price or the tokens are not known.

        `cached` is a part of `prompt`.
        """
        price = self.price(model)
        if price is None or prompt is None or completion is None:
            return None
        cached = min(max(cached, 0), prompt)
        cached_price = price.prompt if price.cached is None else price.cached
        return ((prompt - cached) * price.prompt + cached * cached_price + completion * price.completion) / 1e6


def _read(path: Path) -> dict[str, Price]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PriceError(f"price file {path.name}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PriceError(f"price file {path.name}: not TOML: {error}") from error
    return {name: _price(path, name, entry) for name, entry in document.items()}


def _price(path: Path, name: str, entry: Any) -> Price:
    where = f'price file {path.name}: ["{name}"]'
    if not isinstance(entry, dict):
        raise PriceError(f"{where}: found {_kind(entry)}, expected a table with prompt and completion")
    if unknown := sorted(entry.keys() - _KEYS):
        raise PriceError(f"{where}.{unknown[0]}: unknown field, expected one of {', '.join(sorted(_KEYS))}")
    for key in ("prompt", "completion"):
        if key not in entry:
            raise PriceError(f"{where}.{key}: missing, expected {_EXPECTED}")
    for key, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PriceError(f"{where}.{key}: found {_kind(value)}, expected {_EXPECTED}")
        if not 0 <= value < 1e6:
            raise PriceError(f"{where}.{key}: found a number out of range, expected {_EXPECTED}")
    return Price(**{key: float(value) for key, value in entry.items()})


def _kind(value: object) -> str:
    """Name the value's type as TOML does; its four remaining types are dates and times."""
    return _TOML_NAMES.get(type(value), "a date or time")
