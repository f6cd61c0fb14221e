"""docs/op-spec.md is what the models say."""

from __future__ import annotations

from warpsmith.kernels_db.spec import docs
from warpsmith.kernels_db.spec.basic_types import Items, Spec
from warpsmith.kernels_db.spec.dist import Dist
from warpsmith.kernels_db.spec.schema import Op, Workload


def test_the_page_is_up_to_date() -> None:
    written = docs.PAGE.read_text(encoding="utf-8")
    assert written == docs.page(), "run python -m warpsmith.kernels_db.spec.docs"


def test_every_field_of_every_model_is_described() -> None:
    page = docs.page()
    models = Spec.__subclasses__()
    assert Op in models
    for model in models:
        section = page.partition(f"\n### {model.__name__}\n")[2] or page.partition(f"\n### {model.__name__}: ")[2]
        assert section, f"{model.__name__} is missing"
        for name, field in model.model_fields.items():
            if name != "kind":
                assert field.description, f"{model.__name__}.{name} has no docstring"
                assert f"| `{name}` |" in section.partition("\n### ")[0]


def test_types_in_words() -> None:
    assert docs.type_text(Items[Workload]) == "list of Workload"
    assert docs.type_text(Dist | None) == "distribution, or null"
    assert docs.type_text(dict[str, int]) == "mapping of text to integer"
