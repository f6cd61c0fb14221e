"""The HTTP client of the API; its documents are those of `service.documents`."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import httpx
from httpx_sse import EventSource, SSEError
from pydantic import BaseModel

from warpsmith.service.client.errors import ProblemError, ServiceUnreachableError
from warpsmith.service.documents.asks import AskDocument, AskSummary
from warpsmith.service.documents.audit import AuditDocument
from warpsmith.service.documents.bundles import BundleDocument, DroppedBundle, MergeReport, UnjudgedJob
from warpsmith.service.documents.campaigns import CampaignDocument, CampaignProgress, CampaignSummary
from warpsmith.service.documents.comparison import ComparisonDocument
from warpsmith.service.documents.imports import ImportDocument
from warpsmith.service.documents.joining import ConnectionDocument, InviteDocument, NewInvite
from warpsmith.service.documents.kernels import KernelDocument, KernelSummary
from warpsmith.service.documents.nodes import IdeaDocument, NodeDocument, NodeSummary, TreePage
from warpsmith.service.documents.ops import OpDocument, OpSummary
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.pools import PoolDocument
from warpsmith.service.documents.profiles import ProfileDocument
from warpsmith.service.documents.reverifications import (
    ReverificationBatch,
    ReverificationDocument,
    ReverificationSummary,
)
from warpsmith.service.documents.searches import (
    DeletedSearch,
    EstimateDocument,
    EventDocument,
    SearchDocument,
    SearchSummary,
    StoryDocument,
)
from warpsmith.service.documents.system import DrainedWorkers, Health, Ready, WorkerDocument
from warpsmith.service.documents.tries import TryDocument
from warpsmith.workers.search.tree import ENDED

TIMEOUT_S = 30.0
STREAM_SILENCE_S = 60.0  # the server sends a comment at least every 15 s
RECONNECT_FIRST_S = 0.5
RECONNECT_LONGEST_S = 10.0
RECONNECT_FOR_S = 300.0
IMPORT_POLL_S, IMPORT_POLL_LONGEST_S = 0.1, 1.0
WORTH_WAITING = frozenset({429, 503})

_ID = re.compile(r"\w+", re.ASCII)

Document = TypeVar("Document", bound=BaseModel)


class Client:
    """A connection to one service. Not thread-safe; close it after use."""

    def __init__(self, url: str, key: str | None = None, authority: Path | None = None) -> None:
        """`authority`: the PEM file of the certificate authorities that are trusted in place of the usual ones."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        verify = True if authority is None else ssl.create_default_context(cafile=authority)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, verify=verify)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> tuple[Health, float | None]:
        """Return the service's version, and its clock (epoch seconds) where the answer says it; needs no key."""
        answer = self._send_raw("GET", "/healthz")
        said = answer.headers.get("date")
        clock = None if said is None else parsedate_to_datetime(said).timestamp()
        return Health.model_validate(self._read(answer)), clock

    def ready(self) -> Ready:
        """Return that the service can work; raises `ProblemError` that names the part that cannot."""
        return self._get("/readyz", Ready)

    def admits(self) -> bool:
        """Check whether the service admits this client.

        That is: its key, or where it has none, a caller without a key.
        """
        try:
            self._send("GET", "/v1/ops", params={"limit": 1})
        except ProblemError as error:
            if error.status == httpx.codes.UNAUTHORIZED:
                return False
            raise
        return True

    def create_op(self, spec: dict[str, Any]) -> OpDocument:
        """Store an op; the same spec is stored once."""
        return OpDocument.model_validate(self._send("POST", "/v1/ops", json=spec))

    def ops(self, *, most: int | None = None, name: str | None = None) -> list[OpSummary]:
        """List ops, newest first; at most `most`."""
        return self._list("/v1/ops", OpSummary, {"name": name}, most)

    def op(self, op_id: str) -> OpDocument:
        """Fetch an op with its spec."""
        return self._get(f"/v1/ops/{_check_id(op_id)}", OpDocument)

    def create_search(self, body: dict[str, Any], idempotency_key: str | None = None) -> SearchDocument:
        """Submit a search."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return SearchDocument.model_validate(self._send("POST", "/v1/searches", json=body, headers=headers))

    def estimate(self, body: dict[str, Any]) -> EstimateDocument:
        """Estimate the cost of a search; `body` as for `create_search`."""
        return EstimateDocument.model_validate(self._send("POST", "/v1/searches/estimate", json=body))

    def searches(self, *, most: int | None = None, **filters: str | Sequence[str] | None) -> list[SearchSummary]:
        """List searches, newest first; at most `most`."""
        return self._list("/v1/searches", SearchSummary, filters, most)

    def compare(self, search_ids: Sequence[str]) -> ComparisonDocument:
        """Compare searches of one op."""
        return self._get("/v1/searches/compare", ComparisonDocument, {"search": list(search_ids)})

    def search(self, search_id: str) -> SearchDocument:
        """Fetch a search with its progress."""
        return self._get(f"/v1/searches/{_check_id(search_id)}", SearchDocument)

    def change_search(self, search_id: str, action: str) -> SearchDocument:
        """Pause, resume or cancel a search, as `action` says."""
        return SearchDocument.model_validate(self._send("POST", f"/v1/searches/{_check_id(search_id)}/{action}"))

    def change_budget(self, search_id: str, changes: dict[str, float | None]) -> SearchDocument:
        """Set limits of a search; None lifts one."""
        body = {"budget": changes}
        return SearchDocument.model_validate(self._send("PATCH", f"/v1/searches/{_check_id(search_id)}", json=body))

    def label_search(self, search_id: str, labels: dict[str, Any]) -> SearchDocument:
        """Set name, tags, notes or the archive of a search; what is not named stays."""
        return SearchDocument.model_validate(self._send("PATCH", f"/v1/searches/{_check_id(search_id)}", json=labels))

    def delete_search(self, search_id: str) -> DeletedSearch:
        """Delete a search that has ended; its kernels stay."""
        return DeletedSearch.model_validate(self._send("DELETE", f"/v1/searches/{_check_id(search_id)}"))

    def add_idea(self, search_id: str, body: dict[str, Any], idempotency_key: str | None = None) -> IdeaDocument:
        """Add a person's idea to a search."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        path = f"/v1/searches/{_check_id(search_id)}/ideas"
        return IdeaDocument.model_validate(self._send("POST", path, json=body, headers=headers))

    def mark_node(self, node_id: str, mark: str, *, wanted: bool) -> NodeSummary:
        """Pin or ban a node, or take it back."""
        method = "POST" if wanted else "DELETE"
        return NodeSummary.model_validate(self._send(method, f"/v1/nodes/{_check_id(node_id)}/{mark}"))

    def branch(self, node_id: str, body: dict[str, Any], idempotency_key: str | None = None) -> SearchDocument:
        """Start a new search from a node's candidate."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return SearchDocument.model_validate(
            self._send("POST", f"/v1/nodes/{_check_id(node_id)}/branch", json=body, headers=headers)
        )

    def node_at(self, search_id: str, seq: int) -> NodeSummary | None:
        """Find the node with this number in the search's tree."""
        page = self._get(f"/v1/searches/{_check_id(search_id)}/tree", TreePage, {"after_seq": seq - 1, "limit": 1})
        return next((node for node in page.nodes if node.seq == seq), None)

    def tree(self, search_id: str) -> list[NodeSummary]:
        """List every node of a search by rising `seq`."""
        nodes: list[NodeSummary] = []
        after: int | None = None
        while True:
            parameters = {} if after is None else {"after_seq": after}
            page = self._get(f"/v1/searches/{_check_id(search_id)}/tree", TreePage, parameters)
            nodes += page.nodes
            if page.next_after_seq is None or page.next_after_seq == after:
                return nodes
            after = page.next_after_seq

    def story(self, search_id: str) -> StoryDocument:
        """Fetch the story of a search in prose."""
        return self._get(f"/v1/searches/{_check_id(search_id)}/story", StoryDocument)

    def node(self, node_id: str) -> NodeDocument:
        """Fetch a node with its source, verdicts and model calls."""
        return self._get(f"/v1/nodes/{_check_id(node_id)}", NodeDocument)

    def request_profile(self, node_id: str) -> ProfileDocument:
        """Request a profile of a node's candidate."""
        return ProfileDocument.model_validate(self._send("POST", f"/v1/nodes/{_check_id(node_id)}/profile"))

    def profile(self, node_id: str, *, trace: bool = False) -> ProfileDocument:
        """Fetch the node's latest profile, finished or not."""
        return self._get(f"/v1/nodes/{_check_id(node_id)}/profile", ProfileDocument, {"trace": trace})

    def create_try(self, node_id: str, source: str, level: str, asked_by: str | None = None) -> TryDocument:
        """Have a candidate tried for a node."""
        body = {"source": source, "level": level} | ({"asked_by": asked_by} if asked_by else {})
        return TryDocument.model_validate(self._send("POST", f"/v1/nodes/{_check_id(node_id)}/tries", json=body))

    def get_try(self, try_id: str) -> TryDocument:
        """Fetch a try, ended or not."""
        return self._get(f"/v1/tries/{_check_id(try_id)}", TryDocument)

    def import_pool(self, content: bytes, told: Callable[[ImportDocument], None] | None = None) -> PoolDocument:
        """Store a pool (JSON lines) and return it once a worker has read it; the same pool is stored once.

        `told` is called with what is known of the import, again and again. Raises ProblemError for a pool that is
        wrong.
        """
        result = self.wait_for_import(self.send_pool(content), told).result
        assert result is not None
        return self._get(f"/v1/pools/{result.pool_id}", PoolDocument)

    def send_pool(self, content: bytes, idempotency_key: str | None = None) -> ImportDocument:
        """Send a pool (JSON lines) to be stored, and return its import at once."""
        headers = {"Content-Type": "application/x-ndjson"}
        headers |= {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return ImportDocument.model_validate(self._send("POST", "/v1/pools", content=content, headers=headers))

    def wait_for_import(
        self, sent: ImportDocument, told: Callable[[ImportDocument], None] | None = None
    ) -> ImportDocument:
        """Return the import once it is done; raises ProblemError where it failed."""
        pause_s = IMPORT_POLL_S
        while sent.state in ("pending", "running"):
            if told is not None:
                told(sent)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, IMPORT_POLL_LONGEST_S)
            sent = self.get_import(sent.id)
        if sent.problem is not None:
            raise ProblemError(sent.problem.status, sent.problem.model_dump(exclude_none=True))
        return sent

    def get_import(self, import_id: str) -> ImportDocument:
        """Fetch an import: its progress, its result or its errors."""
        return self._get(f"/v1/imports/{_check_id(import_id)}", ImportDocument)

    def imports(self, most: int | None = None, **filters: str | None) -> list[ImportDocument]:
        """List imports, newest first; at most `most`."""
        return self._list("/v1/imports", ImportDocument, filters, most)

    def pools(self) -> list[PoolDocument]:
        """List every pool, newest first."""
        return self._list("/v1/pools", PoolDocument, {})

    def export_pool(self, search_id: str) -> bytes:
        """Fetch the pool of a search: its recorded replies as JSON lines."""
        return self._send_raw("GET", f"/v1/searches/{_check_id(search_id)}/pool").content

    def create_bundle(self, search_id: str, idempotency_key: str | None = None) -> BundleDocument:
        """Take the judge steps of a search that wait, as signed jobs."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return BundleDocument.model_validate(
            self._send("POST", f"/v1/searches/{_check_id(search_id)}/bundles", headers=headers)
        )

    def merge_verdicts(self, lines: bytes) -> MergeReport:
        """Store verdicts, or the reasons why there are none (JSON lines); each verdict counts once."""
        headers = {"Content-Type": "application/x-ndjson"}
        return MergeReport.model_validate(self._send("POST", "/v1/bundles/merge", content=lines, headers=headers))

    def unjudged(self, bundle_id: str) -> list[UnjudgedJob]:
        """List the jobs of a bundle that their host could not judge, with the reasons."""
        found = self._send("GET", f"/v1/bundles/{_check_id(bundle_id)}/unjudged")
        return [UnjudgedJob.model_validate(job) for job in found]

    def settle_unjudged(self, bundle_id: str, then: Literal["queue", "fail"]) -> DroppedBundle:
        """Give the steps of these jobs back to the queue, or fail them."""
        path = f"/v1/bundles/{_check_id(bundle_id)}/unjudged"
        return DroppedBundle.model_validate(self._send("POST", path, json={"then": then}))

    def drop_bundle(self, bundle_id: str) -> DroppedBundle:
        """Give the steps of a bundle back to the queue."""
        return DroppedBundle.model_validate(self._send("DELETE", f"/v1/bundles/{_check_id(bundle_id)}"))

    def asks(self, state: str | None = "open", search_id: str | None = None) -> list[AskSummary]:
        """List model requests of agent mode."""
        return self._list("/v1/asks", AskSummary, {"state": state, "search_id": search_id})

    def ask(self, ask_id: str) -> AskDocument:
        """Fetch an ask with its prompt."""
        return self._get(f"/v1/asks/{_check_id(ask_id)}", AskDocument)

    def answer(self, ask_id: str, reply: str, answered_by: str | None) -> AskDocument:
        """Answer an ask."""
        body = {"reply": reply} | ({"answered_by": answered_by} if answered_by else {})
        return AskDocument.model_validate(self._send("POST", f"/v1/asks/{_check_id(ask_id)}/answer", json=body))

    def kernels(self, *, most: int | None = None, **filters: str | None) -> list[KernelSummary]:
        """List kept kernels, newest first; at most `most`."""
        return self._list("/v1/kernels", KernelSummary, filters, most)

    def kernel(self, kernel_id: str) -> KernelDocument:
        """Fetch a kernel with its evidence."""
        return self._get(f"/v1/kernels/{_check_id(kernel_id)}", KernelDocument)

    def create_campaign(self, body: dict[str, Any], idempotency_key: str | None = None) -> CampaignDocument:
        """Begin a campaign; its stages are for this client to do."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return CampaignDocument.model_validate(self._send("POST", "/v1/campaigns", json=body, headers=headers))

    def change_campaign(self, campaign_id: str, revision: int, progress: CampaignProgress) -> CampaignDocument:
        """Store a campaign's progress, based on this revision."""
        body = {"revision": revision, "progress": progress.model_dump(mode="json")}
        return CampaignDocument.model_validate(self._send("PUT", f"/v1/campaigns/{_check_id(campaign_id)}", json=body))

    def campaigns(self, *, most: int | None = None, **filters: str | None) -> list[CampaignSummary]:
        """List campaigns, newest first; at most `most`."""
        return self._list("/v1/campaigns", CampaignSummary, filters, most)

    def campaign(self, campaign_id: str) -> CampaignDocument:
        """Fetch a campaign with its regions."""
        return self._get(f"/v1/campaigns/{_check_id(campaign_id)}", CampaignDocument)

    def reverify(self, kernel_id: str) -> ReverificationDocument:
        """Have a kernel judged again."""
        return ReverificationDocument.model_validate(self._send("POST", f"/v1/kernels/{_check_id(kernel_id)}/reverify"))

    def reverify_all(self, *, op: str | None, target: str | None, due: bool, limit: int = 500) -> ReverificationBatch:
        """Have every matching kernel judged again; at most `limit`."""
        body = {"op": op, "target": target, "due": due, "limit": limit}
        return ReverificationBatch.model_validate(self._send("POST", "/v1/kernels/reverify", json=body))

    def reverification(self, reverification_id: str) -> ReverificationDocument:
        """Fetch a re-verification with its verdict."""
        return self._get(f"/v1/reverifications/{_check_id(reverification_id)}", ReverificationDocument)

    def reverifications(self, kernel_id: str) -> list[ReverificationSummary]:
        """List a kernel's re-verifications, newest first."""
        return self._list(f"/v1/kernels/{_check_id(kernel_id)}/reverifications", ReverificationSummary, {})

    def export(
        self, kernel_id: str, form: str = "package", others: Sequence[str] = (), name: str | None = None
    ) -> bytes:
        """Fetch an export of the kernel, with `others` of its op, as a zip archive; `name` is its import name."""
        params = {"format": form, "with": list(others)} | ({} if name is None else {"name": name})
        return self._send_raw("GET", f"/v1/kernels/{_check_id(kernel_id)}/export", params=params).content

    def audit(self, most: int, **filters: str | None) -> list[AuditDocument]:
        """List entries of the audit log, newest first, at most `most`."""
        return self._list("/v1/audit", AuditDocument, filters, most)

    def workers(self) -> list[WorkerDocument]:
        """List every worker that reported in."""
        return self._list("/v1/workers", WorkerDocument, {})

    def drain(self, name: str) -> DrainedWorkers:
        """Tell a worker, or all of a host, to drain."""
        return DrainedWorkers.model_validate(self._send("POST", "/v1/workers/drain", json={"name": name}))

    def invite(self, name: str, uses: int, expires_in_s: float) -> NewInvite:
        """Make a token with which hosts join as workers."""
        body = {"name": name, "uses": uses, "expires_in_s": expires_in_s}
        return NewInvite.model_validate(self._send("POST", "/v1/workers/invites", json=body))

    def invites(self) -> list[InviteDocument]:
        """List invitations, newest first."""
        return self._list("/v1/workers/invites", InviteDocument, {})

    def revoke_invite(self, invite_id: str) -> InviteDocument:
        """Revoke an invitation."""
        return InviteDocument.model_validate(self._send("DELETE", f"/v1/workers/invites/{_check_id(invite_id)}"))

    def join(self, body: dict[str, str]) -> ConnectionDocument:
        """Exchange the token of an invitation for what a worker needs; needs no key."""
        return ConnectionDocument.model_validate(self._send("POST", "/v1/workers/join", json=body))

    def follow(self, search_id: str) -> Iterator[EventDocument]:
        """Yield the events of a search, from its beginning to its end.

        A dropped stream continues after the last event seen. Raises `ServiceUnreachableError` when no connection can
        be made for five minutes.
        """
        last: int | None = None
        lost_at: float | None = None
        delay_s = RECONNECT_FIRST_S
        while True:
            try:
                for event in self._stream(search_id, last):
                    lost_at, delay_s = None, RECONNECT_FIRST_S
                    if event is not None:
                        last = event.id
                        yield event
                if self.search(search_id).state in ENDED:
                    return
                lost_at, delay_s = None, RECONNECT_FIRST_S
            except (httpx.TransportError, ServiceUnreachableError, ProblemError) as error:
                if isinstance(error, ProblemError) and error.status not in WORTH_WAITING:
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > RECONNECT_FOR_S:
                    raise ServiceUnreachableError(self.url, error) from None
                delay_s = min(delay_s * 2, RECONNECT_LONGEST_S)
            time.sleep(delay_s)

    def _stream(self, search_id: str, last: int | None) -> Iterator[EventDocument | None]:
        """Yield None once connected, then the events of this connection."""
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
        timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
        path = f"/v1/searches/{_check_id(search_id)}/events"
        with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.is_error:
                response.read()
                raise _make_problem(response)
            yield None
            with suppress(SSEError):  # no stream: asking for the search tells who answers here
                for event in EventSource(response).iter_sse():
                    if event.data:  # a comment or a `retry` alone has none
                        yield EventDocument.model_validate_json(event.data)

    def _get(self, path: str, kind: type[Document], parameters: dict[str, Any] | None = None) -> Document:
        return kind.model_validate(self._send("GET", path, params=parameters or {}))

    def _list(
        self,
        path: str,
        kind: type[Document],
        filters: Mapping[str, str | Sequence[str] | None],
        most: int | None = None,
    ) -> list[Document]:
        parameters: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
        items: list[Document] = []
        after: str | None = None
        while True:
            page = Page[dict[str, Any]].model_validate(
                self._send("GET", path, params=parameters | ({"after": after} if after else {}))
            )
            items += [kind.model_validate(item) for item in page.items]
            if page.next is None or page.next == after or (most is not None and len(items) >= most):
                return items[:most]
            after = page.next

    def _send(self, method: str, path: str, **arguments: Any) -> Any:
        return self._read(self._send_raw(method, path, **arguments))

    def _read(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except json.JSONDecodeError:
            detail = f"{self.url}{response.request.url.path} answered something that is not JSON"
            raise ProblemError(response.status_code, {"title": "No Warpsmith service", "detail": detail}) from None

    def _send_raw(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **arguments)
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ServiceUnreachableError(self.url, error) from None
        if response.is_error:
            raise _make_problem(response)
        return response


def _check_id(text: str) -> str:
    """Return `text` as a part of a path; raises ProblemError where it cannot be an id.

    Other text might name another path.
    """
    if _ID.fullmatch(text) is None:
        raise ProblemError(
            404, {"title": "Not found", "detail": f"id: found {text!r}, expected one such as sr_01kd..."}
        )
    return text


def _make_problem(response: httpx.Response) -> ProblemError:
    try:
        document = response.json()
    except json.JSONDecodeError:
        document = {}
    if not isinstance(document, dict) or "title" not in document:
        document = {"title": f"HTTP {response.status_code} from {response.url}", "detail": response.text[:200]}
    return ProblemError(response.status_code, document)
