"""The transformer of the sweep analysis document, and its synthetic batch.

Each token has dense features and a set of categories. Both are projected to the model's width and
added; encoder layers and a small MLP, which scores each token, follow. So a layer's GEMMs are QKV,
output projection and the two of the MLP, next to attention, each forward once and backward twice.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import nn

from gemmetry.training.keys import ModelKeys, WorkloadConfig


class Layer(nn.Module):  # type: ignore[misc]
    """An encoder layer with normalisation in front of attention and MLP."""

    def __init__(self, keys: ModelKeys) -> None:
        super().__init__()
        width, hidden = keys.model_dim, keys.mlp_hidden_dim
        self.heads = keys.num_heads
        self.dropout = keys.dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[sequences, tokens, width] -> the same shape."""
        tokens = tokens + self._drop(self._attention(self.attention_norm(tokens)))
        hidden = self._drop(functional.gelu(self.up(self.mlp_norm(tokens))))
        return tokens + self._drop(self.down(hidden))

    def _attention(self, tokens: torch.Tensor) -> torch.Tensor:
        sequences, length, width = tokens.shape
        heads = self.qkv(tokens).view(sequences, length, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0
        )
        return self.projection(mixed.transpose(1, 2).reshape(sequences, length, width))

    def _drop(self, values: torch.Tensor) -> torch.Tensor:
        return functional.dropout(values, self.dropout, self.training)


class Transformer(nn.Module):  # type: ignore[misc]
    """The whole model."""

    def __init__(self, keys: ModelKeys) -> None:
        super().__init__()
        self.embedding = nn.Embedding(keys.vocab_size, keys.embedding_dim)
        self.dense_projection = nn.Linear(keys.num_dense_features * keys.dense_dim, keys.model_dim)
        self.embedding_projection = nn.Linear(keys.embedding_dim, keys.model_dim)
        self.layers = nn.ModuleList(Layer(keys) for _ in range(keys.num_layers))
        self.norm = nn.LayerNorm(keys.model_dim)
        self.scorer = nn.Sequential(
            nn.Linear(keys.model_dim, keys.mlp_hidden_dim),
            nn.GELU(),
            nn.Dropout(keys.dropout),
            nn.Linear(keys.mlp_hidden_dim, 1),
        )

    def forward(
        self, dense: torch.Tensor, categories: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """The loss, a scalar: the mean binary cross-entropy of the scores, computed in fp32.

        Args:
            dense: [sequences, tokens, dense features x their size].
            categories: [sequences, tokens, sparse features], rows of the embedding table.
            target: [sequences, tokens], 0 or 1.
        """
        embedded = self.embedding_projection(self.embedding(categories).mean(dim=2))
        tokens = self.dense_projection(dense) + embedded
        for layer in self.layers:
            tokens = layer(tokens)
        scores = self.scorer(self.norm(tokens)).squeeze(-1)
        return functional.binary_cross_entropy_with_logits(scores.float(), target.float())


def count_parameters(model: nn.Module) -> int:
    """Number of parameters of the whole model, however it is spread."""
    return sum(int(parameter.numel()) for parameter in model.parameters())


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""One micro-batch on the device: the arguments of :meth:`Transformer.forward`."""


def draw_batches(config: WorkloadConfig, device: torch.device, rank: int) -> list[Batch]:
    """The micro-batches of `rank`, which every step uses again. They follow from the seed."""
    generator = torch.Generator(device).manual_seed(config.dataset.seed + 1 + rank)
    keys = config.model
    tokens = (config.training.micro_batch, config.dataset.sequence_length)
    features = keys.num_dense_features * keys.dense_dim
    categories = (*tokens, config.dataset.sparse_features)
    return [
        (
            torch.randn(*tokens, features, device=device, generator=generator),
            torch.randint(keys.vocab_size, categories, device=device, generator=generator),
            torch.randint(2, tokens, device=device, generator=generator).float(),
        )
        for _ in range(config.training.gradient_accumulation)
    ]
