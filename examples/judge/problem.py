"""A linear layer and softmax, as a problem in KernelBench's form."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(features, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), -1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 32)]


def get_init_inputs() -> list[int]:
    return [32]
