import torch
from torch import nn

VOCABULARY = 1000
WIDTH = 64


class Model(nn.Module):
    """The mean of the embeddings of a row of tokens. Tokens are integers, and stay so."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens, weights):
        return (self.table(tokens) * weights.unsqueeze(-1)).mean(dim=1)


def get_inputs():
    tokens = torch.randint(0, VOCABULARY, (32, 24))
    weights = torch.softmax(torch.randn(32, 24), dim=1)
    return [tokens, weights]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
