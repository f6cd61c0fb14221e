"""Checks of the body of POST /v1/searches: a search that can run, or the wrong fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import tier_of
from warpsmith.kernels_db.job.languages import of_device
from warpsmith.kernels_db.spec.basic_types import refuse
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors, Target, parse_op
from warpsmith.kernels_db.store.tables import PoolRow, TeamRow
from warpsmith.kernels_db.store.teams import may_read_held
from warpsmith.service.api.auth import Caller
from warpsmith.service.api.bodies import StrictBody
from warpsmith.service.api.context import Service
from warpsmith.service.api.handlers import convert_spec_error
from warpsmith.service.api.labels import Name, Notes, Tags
from warpsmith.service.api.named_ops import find_op, find_stored_op
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import InvalidInput, InvalidPool, MissingSetting
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.llm.estimate import Estimate, estimate, unpriced
from warpsmith.workers.llm.providers.cost import PriceError, Prices
from warpsmith.workers.llm.providers.endpoints import OPENAI_BASE_URL, address, check_endpoints, has_key
from warpsmith.workers.llm.providers.factory import check_model
from warpsmith.workers.llm.providers.naming import name_model
from warpsmith.workers.llm.providers.shares import parse_choices
from warpsmith.workers.search.budget import budget_document, parse_budget
from warpsmith.workers.search.policy import parse_policy, policy_document
from warpsmith.workers.steps.seeding import MOST_SEEDS


def _offered(device: str) -> str:
    """Write the languages of searches for a type of device. Free Python is judged alone."""
    return ", ".join(f"`{name}`" for name in of_device(device, gated=True))


LONGEST_NAMED = 128
"""Characters of an op's id or name."""

REMEMBERED_SPECS = 32
LONGEST_REMEMBERED = 64 * 1024
"""Specs that a process remembers parsed, the last ones, and characters of the longest one."""

DEFAULT_POLICY = {"name": "idea_beam"}

ADD_RELU: dict[str, Any] = {
    "schema_version": 1,
    "name": "add_relu",
    "axes": {"n": {"kind": "var"}},
    "inputs": [{"name": "x", "shape": ["n"], "dtype": "float32"}, {"name": "y", "shape": ["n"], "dtype": "float32"}],
    "outputs": [{"name": "out", "shape": ["n"], "dtype": "float32"}],
    "reference": "import torch\n\ndef run(x, y):\n    return torch.relu(x + y)\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"n": 1048576}},
        {"id": "ragged", "role": "test", "axes": {"n": 1021}},
    ],
}


def _check_op(value: object) -> object:
    """Refuse what is no op, before the members of a union each say so of a field that is not there."""
    if value is None or isinstance(value, dict) or (isinstance(value, str) and 0 < len(value) <= LONGEST_NAMED):
        return value
    raise refuse("a spec, or the id or name of an op")


OpOrName = Annotated[
    dict[str, Any] | Annotated[str, Field(min_length=1, max_length=LONGEST_NAMED)] | None, BeforeValidator(_check_op)
]


class SearchRequest(StrictBody):
    """A search: the op, the target, the method and the limits."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["op"]}, {"required": ["op_id"]}],
            "examples": [
                {"op": ADD_RELU, "target": "cpu", "model": {"provider": "agent"}, "budget": {"candidates": 12}},
                {"op": "softmax", "target": "cpu", "model": {"provider": "agent"}},
                {
                    "op": ADD_RELU,
                    "target": "cuda:sm_90",
                    "language": "triton",
                    "policy": {"name": "idea_beam", "beam": 2, "rounds": 3},
                    "budget": {"candidates": 40, "cost_usd": 2.5, "wall_clock_s": 3600},
                    "model": {"provider": "openai", "model": "gpt-5"},
                },
                {
                    "op": ADD_RELU,
                    "target": "cpu",
                    "budget": {"tokens": 500000},
                    "model": {
                        "provider": "openai",
                        "models": [
                            {"model": "gpt-5", "for": ["ideate", "reflect"]},
                            {"model": "coder", "base_url": "http://localhost:8000/v1", "for": ["code", "repair"]},
                        ],
                    },
                },
            ],
        },
    )

    op: OpOrName = Field(
        None,
        description="The op spec itself, stored as by POST /v1/ops; or the id or name of an op: a stored one's, else "
        "an example's that ships",
    )
    op_id: str | None = Field(None, max_length=32, description="Or the id of a stored op")
    target: str = Field(
        description="`cpu` (this machine's architecture), `cpu:x86_64`, `cuda:sm_90` ...", max_length=64
    )
    language: str | None = Field(
        None,
        max_length=16,
        description=f"{_offered('cpu')} on a CPU; {_offered('cuda')} on a GPU; the first is the default",
    )
    policy: dict[str, Any] | None = Field(
        None, description="Name and parameters; default is the pool's, or idea_beam with its defaults"
    )
    budget: dict[str, Any] | None = Field(
        None,
        description="Limits: candidates, model_calls, tokens, cost_usd, wall_clock_s, gpu_seconds; default is the "
        "pool's, or none. try_seconds, for tries of candidates, is 300 where it is not given; sweep_seconds, of "
        "gpu_seconds, is for sweeps over tunables. Neither ends a search",
    )
    model: dict[str, Any] = Field(
        description='{"provider": "openai", "model"?, "base_url"?}, or several models with a share each: '
        '{"provider": "openai", "models": [{"model", "base_url"?, "share"?, "for"?}]}; '
        'or {"provider": "replay", "pool"}; or {"provider": "agent", "pool"?}, where the pool answers what it can'
    )
    seeds: int | None = Field(
        None,
        ge=0,
        le=MOST_SEEDS,
        description="Stored kernels for similar ops that the tree starts with, at most; they are judged again and take "
        "at most a quarter of the budget's candidates. Default 3, with a pool 0",
    )
    name: Name = None
    tags: Tags = Field(default_factory=list)
    notes: Notes = None


@dataclass(frozen=True)
class Submission:
    """A search that can run."""

    op: Op
    target: Target
    language: str
    policy: dict[str, Any]
    budget: dict[str, Any]
    model: dict[str, Any]
    model_name: str | None
    seeds: int


def check_submission(
    service: Service, session: Session, request: SearchRequest, caller: Caller, *, begin: bool = True
) -> Submission:
    """Check the search that `request` asks for; raises InvalidInput and its kinds.

    They name the bad fields; an op or a pool that `caller` may not read is one that is not there. Without `begin` no
    key is needed.
    """
    op = _resolve_op(service, session, request, caller.reads)
    target = parse_target(request.target)
    if not op.workloads_for(target):
        raise InvalidInput.one("target", str(target), f"a device for which op {op.name} has workloads")
    model = request.model
    try:
        check_model(model)
        if model["provider"] == "openai":
            check_endpoints(model, service.settings)
    except SpecError as error:
        raise InvalidInput.one(error.field, error.found, error.expected) from error
    header: Mapping[str, Any] = {}
    if "pool" in model:
        header = _find_pool_header(service, session, model["pool"], caller.reads)
    elif model["provider"] == "openai" and begin:
        require_key(service.settings, model)
    language = _choose_language(request.language, header.get("language"), target)
    if header:
        _check_pool(header, op, target, language)
    try:
        policy = policy_document(
            parse_policy(_choose_first(request.policy, header.get("policy") or None, DEFAULT_POLICY))
        )
        budget = budget_document(parse_budget(_choose_first(request.budget, header.get("budget"), {})))
    except SpecError as error:
        raise InvalidInput.one(error.field, error.found, error.expected) from error
    check_cost_cap(service.settings, model, budget)
    _check_cost_quota(service.settings, session, caller.team, model)
    seeds = _choose_first(request.seeds, 0 if header else MOST_SEEDS)  # a replay repeats its recording
    model_name = name_model(model, service.settings, header)
    return Submission(op, target, language, policy, dict(budget), model, model_name, seeds)


def parse_target(text: str, field: str = "target") -> Target:
    """Parse a target; raises InvalidInput that names `field`."""
    try:
        return Target.parse(text)
    except SpecError as error:
        raise InvalidInput.one(field, error.found, error.expected) from error


def _resolve_op(service: Service, session: Session, request: SearchRequest, team: str | None) -> Op:
    if (request.op is None) == (request.op_id is None):
        found = "neither op nor op_id" if request.op is None else "both op and op_id"
        raise InvalidInput.one("op", found, "op (a spec, or an op's id or name) or op_id (a stored one's)")
    if isinstance(request.op, str):
        return find_op(service, session, request.op, team, "op")
    if request.op is not None:
        try:
            text = json.dumps(request.op)
            return _parse(text) if len(text) <= LONGEST_REMEMBERED else parse_op(request.op)
        except SpecErrors as error:
            raise convert_spec_error(error, "op.") from error
    return find_stored_op(service, session, request.op_id or "", team, "op_id")


@lru_cache(maxsize=REMEMBERED_SPECS)
def _parse(text: str) -> Op:
    """Parse a spec, once for many submissions: those of one op come together. Nothing changes an Op."""
    return parse_op(json.loads(text))


def _choose_language(asked: str | None, recorded: str | None, target: Target) -> str:
    known = of_device(target.device, gated=True)
    if asked is None:
        return recorded if recorded in known else known[0]
    language = asked
    if language not in known:
        free = "; free Python is of the sandbox tier, and judged alone (warpsmith judge)"
        expected = f"one of {', '.join(known)} on {target}{free if tier_of(language) == 'sandbox' else ''}"
        raise InvalidInput.one("language", language, expected)
    return language


def _find_pool_header(service: Service, session: Session, pool_id: str, team: str | None) -> Mapping[str, Any]:
    row = session.get(PoolRow, pool_id) if service.is_id(pool_id) else None
    if row is None or not may_read_held(session, row.id, team):
        raise InvalidInput.one("model.pool", pool_id, "the id of a stored pool (GET /v1/pools)")
    return row.header


def _check_pool(header: Mapping[str, Any], op: Op, target: Target, language: str) -> None:
    """Raise InvalidPool where the requests of this search could not find the pool's replies."""
    recorded = (header["op_digest"], str(header["target"]).partition(":")[0], header["language"])
    wanted = (op.semantic_digest, target.device, language)
    if recorded == wanted:
        return
    digest = header["op_digest"][:12]
    found = f"a pool of op {header['op']} (digest {digest}) for {header['target']} in {header['language']}"
    expected = f"a pool of op {op.name} (digest {op.semantic_digest[:12]}) for {target.device} in {language}"
    raise InvalidPool([FieldError(field="model.pool", found=found, expected=expected)])


def require_key(settings: ServiceSettings, model: Mapping[str, Any]) -> None:
    """Raise MissingSetting where OpenAI's endpoint is used without a key.

    The key may be here or at the model workers. Other endpoints may need none.
    """
    addresses = {address(choice.base_url, settings) for choice in parse_choices(model)}
    if OPENAI_BASE_URL not in addresses or has_key(OPENAI_BASE_URL, settings) or settings.openai_key_at_workers:
        return
    expected = (
        "a key of OpenAI; or WARPSMITH_OPENAI_KEY_AT_WORKERS=true where the model workers alone hold it; "
        "or an endpoint that needs none (model.base_url, WARPSMITH_OPENAI_BASE_URL)"
    )
    raise MissingSetting([FieldError(field="WARPSMITH_OPENAI_API_KEY", found="not set", expected=expected)])


def check_cost_cap(settings: ServiceSettings, model: Mapping[str, Any], budget: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a limit of money on a model without a price: it cannot be kept."""
    limit = budget.get("cost_usd")
    if limit is None or not (unknown := unpriced(model, _load_prices(settings), settings)):
        return
    expected = (
        f"no limit of money on {', '.join(unknown)}, whose price is not known: limit tokens instead, or add the price "
        "(WARPSMITH_MODEL_PRICES)"
    )
    raise InvalidInput.one("budget.cost_usd", limit, expected)


def _check_cost_quota(settings: ServiceSettings, session: Session, team: str, model: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a model without a price, where the team has a quota of money: it could not be kept."""
    if model["provider"] != "openai":  # nothing else costs
        return
    row = session.get(TeamRow, team)
    if row is None or row.cost_usd_a_day is None or not (unknown := unpriced(model, _load_prices(settings), settings)):
        return
    expected = (
        f"models with a price, since team {team} has a quota of money ({', '.join(unknown)} has none: "
        "WARPSMITH_MODEL_PRICES)"
    )
    raise InvalidInput.one("model", ", ".join(unknown), expected)


def estimate_submission(service: Service, session: Session, request: SearchRequest, caller: Caller) -> Estimate:
    """Estimate the cost of the search that `request` asks for; it needs no key."""
    found = check_submission(service, session, request, caller, begin=False)
    _load_prices(service.settings)
    return estimate(
        found.op,
        found.target,
        language=found.language,
        policy=found.policy,
        budget=found.budget,
        model=found.model,
        settings=service.settings,
        seeds=found.seeds,
    )


def _load_prices(settings: ServiceSettings) -> Prices:
    try:
        return Prices.load(settings.model_prices)
    except PriceError as error:
        expected = "a TOML file of prices in US dollars per million tokens"
        raise MissingSetting(
            [FieldError(field="WARPSMITH_MODEL_PRICES", found=str(error), expected=expected)]
        ) from error


def _choose_first(*documents: Any) -> Any:
    return next(document for document in documents if document is not None)
