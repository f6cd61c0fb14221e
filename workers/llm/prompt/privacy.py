"""Redact secrets, host names and local paths from prompts.

An op's source, a reply that is shown again and a compiler's log are other people's text: any of them may hold
something private by accident.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from warpsmith.workers.llm.base import ModelRequest
from warpsmith.workers.settings import Settings, split_addresses
from warpsmith.workers.text import file_of_path

REMOVED = "[removed]"
SHORTEST_SECRET = 8
"""Shorter values of secrets' variables are not redacted.

`1`, `true` and `dev` appear in such variables as well as in any program.
"""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH(?!OR)|DSN", re.IGNORECASE)
_PLACE_NAMES = ("HOME", "PWD", "TMPDIR", "VIRTUAL_ENV", "WARPSMITH_HOME")
_HOST_NAMES = ("HOSTNAME", "COMPUTERNAME", "HOST")
_ROOTS = frozenset({"home", "root", "Users", "tmp", "var", "usr", "opt", "etc", "mnt", "media", "srv", "run", "proc"})
_ROOTS |= {"private", "scratch", "work", "workspace", "data", "nfs"}


@dataclass(frozen=True)
class Private:
    """Text that may not leave: secrets, host names, and paths that begin with one of `roots`.

    Longest first.
    """

    secrets: tuple[str, ...]
    hosts: tuple[str, ...]
    roots: frozenset[str] = _ROOTS

    @classmethod
    def of(cls, environment: Mapping[str, str], hosts: Iterable[str] = (), secrets: Iterable[str] = ()) -> Private:
        """Collect private text from a process's environment, host names, and further secrets.

        `secrets` are those that are not in the environment.
        """
        found = {*secrets}
        for name, value in environment.items():
            if _SECRET_NAME.search(name):
                found.add(value)
            elif "@" in value:
                found.update(_passwords(value))
        named = (*hosts, *(environment.get(name, "") for name in _HOST_NAMES))
        words = {word for word in found if len(word) >= SHORTEST_SECRET}
        names = {word for name in named for word in (name, name.partition(".")[0]) if _is_a_name(word)}
        places = (environment.get(name, "").split("/") for name in _PLACE_NAMES)
        roots = _ROOTS | {parts[1] for parts in places if len(parts) > 2 and parts[1]}
        return cls(tuple(sorted(words, key=len, reverse=True)), tuple(sorted(names, key=len, reverse=True)), roots)

    @classmethod
    def here(cls, settings: Settings) -> Private:
        """Collect the private text of this process, as it is now."""
        secrets = [os.environ.get(name, "") for name in settings.model_keys.values()]
        if settings.openai_api_key is not None:
            secrets.append(settings.openai_api_key.get_secret_value())
        urls = (settings.database_url, settings.broker_url)
        secrets += [password for url in urls if url for password in _passwords(url)]
        return cls.of(os.environ, [socket.gethostname()], secrets)

    def without(self, text: str) -> str:
        """Take each secret and host name out of `text`.

        Each path below a known root is cut to its file's name.
        """
        for secret in self.secrets:
            text = text.replace(secret, REMOVED)
        for host in self.hosts:  # `node-17` is not found in `node-170`
            text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", REMOVED, text)
        roots = "|".join(sorted(map(re.escape, self.roots)))
        path = rf"(?:file://|(?<=-[IL])|(?<![\w./]))/(?:{roots})(?:/[\w.+@-]+)+/?"
        return re.sub(path, lambda match: file_of_path(match[0]), text)

    def request(self, request: ModelRequest) -> ModelRequest:
        """Return `request` as it may leave."""
        messages = tuple({**message, "content": self.without(message["content"])} for message in request.messages)
        return replace(request, messages=messages)


def _passwords(text: str) -> list[str]:
    """Return the passwords in a URL, or in several that are separated by `;` as those of a cluster's nodes are."""
    found = []
    for address in split_addresses(text):
        try:
            parts = urlsplit(address)
        except ValueError:
            continue
        named = [value for name, value in parse_qsl(parts.query) if name == "password"]
        found += [unquote(parts.password or ""), *named]
    return [password for password in found if password]


def _is_a_name(host: str) -> bool:
    """Check whether a host name can be told from an ordinary word.

    `localhost` and `hopper` cannot, `gpu-17` can.
    """
    return len(host) > 4 and re.search(r"[0-9.-]", host) is not None
