import torch


def match_reference(data, output, reference, rtol=1e-5, atol=1e-8):
    """Whether a submission's output is near the reference's."""
    expected = reference(data)
    if torch.allclose(output, expected, rtol=rtol, atol=atol):
        return True, ""
    return False, "the output is not near the reference's"


def make_match_reference(reference, **tolerance):
    """A checker with this tolerance."""

    def check(data, output):
        return match_reference(data, output, reference, **tolerance)

    return check
