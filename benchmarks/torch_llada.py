"""LLaDA's network and decoding in torch: the other side of `benchmarks/samplers.py`.

The algorithms of ML-GSAI/LLaDA (`generate.py`) and Fast-dLLM (the dual cache), written anew as a
good eager program: fused attention, rotary tables made once, inference mode, no noise in greedy
draws. Like the originals it evaluates the head on every column that it reads, and the softmax in
float64.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


class Network:
    """A LLaDA of our parameters, `{"blocks.attention.query.kernel": (N, out, in), ...}`."""

    def __init__(self, config: Any, leaves: dict[str, np.ndarray], columns: int):
        self.heads, self.head_dim, self.eps = config.H, config.head_dim, config.eps
        arrays = {name: torch.from_numpy(np.array(leaf)) for name, leaf in leaves.items()}
        per_layer = [name for name in arrays if name.startswith("blocks.")]
        self.layers = [
            {name.removeprefix("blocks."): arrays[name][n].contiguous() for name in per_layer}
            for n in range(config.N)
        ]
        self.input, self.output = arrays["input.rows"], arrays["output.rows"]
        self.norm = arrays["norm.weight"]
        frequencies = config.rope_theta ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
        angles = torch.arange(columns)[:, None] * frequencies[None, :]
        self.cos, self.sin = angles.cos(), angles.sin()

    def features(self, tokens: torch.Tensor, start: int = 0, memory: list | None = None):
        """(B, T, D) the head's input for tokens that stand at `start`.

        With a memory, one (keys, values) of all columns for each layer, their own are written
        there first; an empty one is filled.
        """
        x = F.embedding(tokens, self.input)
        fill = memory is not None and not memory
        for n, layer in enumerate(self.layers):
            rows = self._normed(x, layer["attention_norm.weight"])
            q, k, v = (
                self._split(F.linear(rows, layer[f"attention.{name}.kernel"]))
                for name in ("query", "key", "value")
            )
            q, k = self._rotated(q, start), self._rotated(k, start)
            if fill:
                memory.append((k, v))
            elif memory is not None:
                for kept, new in zip(memory[n], (k, v), strict=True):
                    kept[:, :, start : start + new.shape[2]] = new
                k, v = memory[n]
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + F.linear(mixed, layer["attention.out.kernel"])
            rows = self._normed(x, layer["mlp_norm.weight"])
            gate, up = (F.linear(rows, layer[f"mlp.{name}.kernel"]) for name in ("gate", "up"))
            x = x + F.linear(F.silu(gate) * up, layer["mlp.down.kernel"])
        return self._normed(x, self.norm)

    def head(self, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(rows, self.output)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (self.heads, self.head_dim)).transpose(1, 2)

    def _rotated(self, x: torch.Tensor, start: int) -> torch.Tensor:
        rows = slice(start, start + x.shape[2])
        (left, right), cos, sin = x.chunk(2, dim=-1), self.cos[rows], self.sin[rows]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def quotas(is_open: torch.Tensor, steps: int) -> list[list[int]]:
    """For each row, how many tokens each step writes; early steps take what does not divide."""
    return [
        [count // steps + (step < count % steps) for step in range(steps)]
        for count in is_open.sum(dim=1).tolist()
    ]


def write(tokens: torch.Tensor, logits: torch.Tensor, is_open, counts, dtype) -> None:
    """Writes the likeliest tokens of each row's most confident open columns, in place."""
    drawn = logits.argmax(dim=-1)
    chances = F.softmax(logits.to(dtype), dim=-1).gather(-1, drawn[..., None])[..., 0]
    confidence = chances.masked_fill(~is_open, -torch.inf)
    for row, count in enumerate(counts):
        chosen = confidence[row].topk(count).indices
        tokens[row, chosen] = drawn[row, chosen]


@torch.inference_mode()
def generate(
    network: Network,
    prompt: np.ndarray,
    *,
    length: int,
    steps: int,
    block: int,
    mask_id: int,
    dtype: torch.dtype = torch.float64,
    head: str = "all",
    cache: bool = False,
) -> np.ndarray:
    """LLaDA's low-confidence remasking, greedy.

    Args:
      dtype: of the softmax; the original's is float64.
      head: the columns that get logits: "all", or only the "block" (what the originals do not do).
      cache: Fast-dLLM's dual cache: everything at a block's first step, then the block alone.
    """
    given = torch.from_numpy(np.array(prompt)).long()
    tokens = F.pad(given, (0, length), value=mask_id)
    count = steps // (length // block)
    for start in range(given.shape[1], tokens.shape[1], block):
        own, memory = tokens[:, start : start + block], [] if cache else None
        counts = quotas(own == mask_id, count)
        for step in range(count):
            now = [row[step] for row in counts]
            if cache and step:  # the block alone
                logits = network.head(network.features(own, start, memory))
                write(own, logits, own == mask_id, now, dtype)
                continue
            features = network.features(tokens, 0, memory)
            if head == "block":
                logits = network.head(features[:, start : start + block])
                write(own, logits, own == mask_id, now, dtype)
            else:
                is_open = tokens == mask_id
                is_open[:, start + block :] = False
                write(tokens, network.head(features), is_open, now, dtype)
    return tokens.numpy()
