"""The models of `python -m benchmarks.models` that are not of `transformers`."""

from __future__ import annotations

import pytest
import torch

from benchmarks import dlrm, models

CPU = torch.device("cpu")


def test_the_dlrm_computes_what_is_published() -> None:
    session = models.Session(next(case for case in models.CASES if case.kind == "dlrm"), CPU)
    made = session.model
    dense, _, indices = session._arguments
    with torch.no_grad():
        vectors = [made.bottom(dense)]
        vectors += [table.weight[indices[place]] for place, table in enumerate(made.tables)]  # bags of one row
        pairs = [(one * other).sum(-1) for n, one in enumerate(vectors) for other in vectors[n + 1 :]]
        expected = made.top(torch.cat([vectors[0], torch.stack(pairs, dim=1)], dim=1))
        assert dense.shape == (2048, made.sizes.dense)
        torch.testing.assert_close(session.call(made, None), expected)
    full = dlrm.Sizes()
    assert (full.tables, full.bottom[-1], full.top[0]) == (26, 128, 1024)


@pytest.mark.parametrize("kind", ["transformer", "recommender"])
def test_a_sample_is_called_as_its_file_says(kind: str) -> None:
    session = models.Session(next(case for case in models.CASES if case.kind == kind), CPU)
    with torch.no_grad():
        expected = models.sample(kind).model()(*models.sample(kind).example_inputs())
        assert torch.equal(session.call(session.model, None), expected)
