"""A submission to ``problem.py``: softmax with the largest value subtracted first."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(features, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.linear.weight.t() + self.linear.bias
        e = torch.exp(y - y.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
