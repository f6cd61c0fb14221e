"""The browser that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.browsing import browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser; each visit has a context of its own. It ends with the module: Playwright's event loop runs as long as
    it does, and other tests have loops of their own.
    """
    with browser() as found:
        yield found
