"""The `openai` provider: any OpenAI-compatible endpoint, through the `openai` client.

The client does timeouts and retries (429, 5xx, connection); what still fails becomes a `ModelUnavailable` whose reason
a person can act on. The reply's body is read here, under a deadline and a size limit, because a client's timeout only
bounds each read.
"""

from __future__ import annotations

import email.utils
import json
import math
import time
from typing import Any

import httpx2
import openai

from warpsmith.workers.llm.base import ModelReply, ModelRequest, ModelUnavailable
from warpsmith.workers.llm.providers.cost import PriceError, Prices
from warpsmith.workers.llm.providers.endpoints import (
    OPENAI_BASE_URL,
    address,
    concurrency_of,
    is_named,
    key_of,
    may_ask,
)
from warpsmith.workers.llm.providers.public_addresses import PrivateAddressError, PublicTransport
from warpsmith.workers.llm.providers.slots import Slots
from warpsmith.workers.settings import Settings
from warpsmith.workers.text import one_line, storable

MAX_BODY_BYTES = 16 * 2**20
MAX_RETRY_AFTER_S = 3600.0
CONNECT_TIMEOUT_S = 10.0


class OpenAIModel:
    """A chat model behind `base_url`, with the key that settings name for that endpoint.

    See `workers.llm.providers.endpoints`. No more calls are under way from this host than settings allow for the
    endpoint.
    """

    provider = "openai"

    def __init__(self, settings: Settings, *, model: str | None, base_url: str | None) -> None:
        self._settings = settings
        self._url = address(base_url, settings)
        self._model = model or settings.openai_model
        self._named = is_named(self._url, settings)
        self._may_ask = may_ask(self._url, settings)
        self._key = ""
        self._slots = Slots(settings.home, self._url, concurrency_of(self._url, settings))
        self._price_file = settings.model_prices
        self._retries = settings.model_retries
        self._timeout_s = settings.model_timeout_s
        self._max_tokens = settings.model_max_tokens
        # OpenAI's newer models refuse the old name of this limit, and some other servers know only the old one.
        self._limit_name = "max_completion_tokens" if self._url == OPENAI_BASE_URL else "max_tokens"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the endpoint's reply to `request`.

        Raises `ModelUnavailable`, or `ModelBusy` where no slot is free. A reply cut at the token limit is a reply
        (`finish_reason` "length"). A request that follows others of its step waits for a slot: those are paid for.
        """
        try:
            with self._slots.one(wait=request.follows):
                return self._complete(request)
        except ModelUnavailable as unavailable:
            unavailable.model = self._model
            raise

    def _complete(self, request: ModelRequest) -> ModelReply:
        if not self._may_ask:  # the settings may have changed since the search was submitted
            raise ModelUnavailable(f"{self._url} is no endpoint that the settings name", final=True)
        self._key = key_of(self._url, self._settings)
        if self._url == OPENAI_BASE_URL and not self._key:
            raise ModelUnavailable("no key for OpenAI: set WARPSMITH_OPENAI_API_KEY", final=True)
        try:
            prices = Prices.load(self._price_file)
        except PriceError as error:  # before any money is spent that could not be counted
            raise ModelUnavailable(str(error), final=True) from error
        started = time.monotonic()
        try:
            # A call takes seconds to minutes, a client milliseconds: one for each call leaves nothing open in between.
            with self._client() as client:
                body = self._call_under_either_name(client, request)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise self._unavailable(error) from error
        except httpx2.InvalidURL as error:
            raise self._unreached(error) from error
        return self._reply(body, time.monotonic() - started, prices)

    def _client(self) -> openai.OpenAI:
        timeout = httpx2.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s))
        return openai.OpenAI(
            api_key=self._key or "none",
            admin_api_key="",  # given, so that none is taken from the environment
            base_url=self._url,
            timeout=timeout,
            max_retries=self._retries,
            # A redirect is not followed: it could lead to an address that no setting names.
            http_client=httpx2.Client(
                timeout=timeout, follow_redirects=False, transport=None if self._named else PublicTransport()
            ),
        )

    def _call_under_either_name(self, client: openai.OpenAI, request: ModelRequest) -> bytes:
        try:
            return self._call(client, request)
        except openai.BadRequestError as error:
            if not self._other_limit_name(error):
                raise
        return self._call(client, request)

    def _call(self, client: openai.OpenAI, request: ModelRequest) -> bytes:
        with client.chat.completions.with_streaming_response.create(
            model=self._model,
            messages=[dict(message) for message in request.messages],  # type: ignore[misc]  # a union of dicts by role
            extra_body={self._limit_name: self._max_tokens},
            # OpenAI logs this header, as gateways may: with it a call there is found here, in `model_calls`.
            extra_headers={"X-Client-Request-Id": f"{request.attempt_id}.{request.identity}.{request.ordinal}"},
        ) as response:
            deadline = time.monotonic() + self._timeout_s
            chunks: list[bytes] = []
            size = 0
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise ModelUnavailable(f"{self._url} answered nonsense: more than {MAX_BODY_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise ModelUnavailable(f"{self._url} is slow: its answer was not complete in {self._timeout_s:g} s")
            return b"".join(chunks)

    def _other_limit_name(self, error: openai.BadRequestError) -> bool:
        """Switch the name of the token limit where the endpoint refused it.

        True when the call is worth repeating.
        """
        if f"'{self._limit_name}'" not in error.message and error.param != self._limit_name:
            return False
        self._limit_name = "max_tokens" if self._limit_name == "max_completion_tokens" else "max_completion_tokens"
        return True

    def _unavailable(self, error: Exception) -> ModelUnavailable:
        match error:
            case openai.APIStatusError():
                return self._refused(error)
            case openai.APIConnectionError():
                return self._unreached(error.__cause__ or error)
            case httpx2.TransportError():
                return self._unreached(error)
        return ModelUnavailable(f"{self._url} answered nonsense: {type(error).__name__}")

    def _unreached(self, cause: BaseException) -> ModelUnavailable:
        match cause:
            case PrivateAddressError():
                return ModelUnavailable(f"{self._url} is at an address that no search may reach", final=True)
            case httpx2.ConnectTimeout():
                return ModelUnavailable(f"{self._url} is down: no connection in time")
            case httpx2.TimeoutException():
                return ModelUnavailable(f"{self._url} is slow: no answer in {self._timeout_s:g} s")
            case httpx2.RemoteProtocolError() | httpx2.ReadError():
                return ModelUnavailable(f"{self._url} closed the connection without a complete answer")
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return ModelUnavailable(f"{self._url} is not a usable base_url: {one_line(str(cause))}", final=True)
        return ModelUnavailable(f"{self._url} is down: {one_line(str(cause)) or type(cause).__name__}")

    def _refused(self, error: openai.APIStatusError) -> ModelUnavailable:
        where, status = self._url, error.status_code
        said = self._told(error)
        after = _retry_after_s(error.response.headers.get("retry-after"))
        if status in {401, 403}:
            given = "refuses the key" if self._key else "wants a key, and none is configured for it"
            return ModelUnavailable(f"{where} {given} ({status}): {said}", final=True)
        if status == 404:
            return ModelUnavailable(f"{where} does not know model {self._model!r} (404): {said}", final=True)
        if status == 402 or error.code == "insufficient_quota":
            return ModelUnavailable(f"{where}: the account's quota is used up ({status}): {said}", final=True)
        if status == 429:
            return ModelUnavailable(f"{where} is over its rate limit (429): {said}", retry_after_s=after)
        if status < 500 and status not in {408, 409, 425}:
            return ModelUnavailable(f"{where} refuses the request ({status}): {said}", final=True)
        return ModelUnavailable(f"{where} failed ({status}): {said}", retry_after_s=after)

    def _told(self, error: openai.APIStatusError) -> str:
        """Return the message of the endpoint's error, without the client's wrapping.

        What is no error of this protocol, and what an endpoint says that no setting names, is not repeated: reasons
        are stored and shown, and it could be a page that only this host can read.
        """
        body = error.body
        if self._named and isinstance(body, dict) and isinstance(body.get("message"), str):
            return one_line(self._hide(body["message"]))
        return "its message is not shown"

    def _hide(self, text: str) -> str:
        """Remove the key from `text`.

        Some endpoints repeat it in their refusal, and reasons are stored and shown.
        """
        return text.replace(self._key, "[key]") if self._key else text

    def _reply(self, body: bytes, latency_s: float, prices: Prices) -> ModelReply:
        try:
            document: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ModelUnavailable(f"{self._url} answered nonsense: {len(body)} bytes that are no JSON") from error
        try:
            choice = document["choices"][0]
            content = choice["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            raise ModelUnavailable(f"{self._url} answered nonsense: no choices[0].message.content") from error
        finish_reason = choice.get("finish_reason")
        if isinstance(choice["message"].get("refusal"), str) and not content:
            content = choice["message"]["refusal"]
        usage = document.get("usage")
        prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        if content is None and (finish_reason == "length" or completion):
            content = ""  # all tokens went into reasoning: a reply, though one without text
        if not isinstance(content, str) or not (content.strip() or finish_reason == "length" or completion):
            raise ModelUnavailable(f"{self._url} answered nonsense: empty content (finish_reason {finish_reason!r})")
        cached = _count(usage.get("prompt_tokens_details"), "cached_tokens") if isinstance(usage, dict) else None
        named = document.get("model")
        model = one_line(storable(named), 128) if isinstance(named, str) and named else self._model
        cost = prices.cost(model, prompt, completion, cached or 0)
        if cost is None:  # the endpoint may answer under another name than it was asked for
            cost = prices.cost(self._model, prompt, completion, cached or 0)
        return ModelReply(
            text=storable(content),
            model=model,
            finish_reason=one_line(finish_reason, 32) if isinstance(finish_reason, str) else None,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost_usd=cost,
            latency_s=latency_s,
        )


def _count(usage: Any, key: str) -> int | None:
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _retry_after_s(header: str | None) -> float | None:
    """Read the seconds of a Retry-After header (a number or an HTTP date), bounded.

    None where it says nothing usable.
    """
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None
