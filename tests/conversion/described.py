"""Networks as their originals' layers are described, in numpy and float64: one row, one head, and
one expert at a time. Nothing here is ours but the words."""

import numpy as np


class Described:
    """SDAR, Fast-dLLM v2 and LLaDA2, from a config.json and the checkpoint's own tensors."""

    def __init__(self, c: dict, tensors: dict[str, np.ndarray]):
        self.c = c
        self.w = {name.removesuffix(".weight"): np.float64(t) for name, t in tensors.items()}
        self.llada2 = "LLaDA2MoeModelLM" in c["architectures"]
        self.block = c.get("bd_size") or c["block_size"]
        self.heads, self.keys = c["num_attention_heads"], c["num_key_value_heads"]
        self.width = c.get("head_dim", c["hidden_size"] // self.heads)

    def norm(self, x, name):
        if name not in self.w:
            return x
        mean = np.mean(x**2, axis=-1, keepdims=True)
        return self.w[name] * x / np.sqrt(mean + self.c["rms_norm_eps"])

    def gated(self, x, name):
        gate, up = (x @ self.w[f"{name}.{part}_proj"].T for part in ("gate", "up"))
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[f"{name}.down_proj"].T

    def turn(self, head):
        """(L, width): entry i turns with entry i + half, the first ones only, by the position."""
        wide = int(self.width * self.c.get("partial_rotary_factor", 1))
        half, out = wide // 2, head.copy()
        for position in range(len(head)):
            for at in range(half):
                angle = position * self.c["rope_theta"] ** (-2 * at / wide)
                one, two = head[position, at], head[position, at + half]
                out[position, at] = one * np.cos(angle) - two * np.sin(angle)
                out[position, at + half] = two * np.cos(angle) + one * np.sin(angle)
        return out

    def projected(self, x, layer):
        """Queries, keys and values: lists of heads (L, width)."""
        counts = (self.heads, self.keys, self.keys)
        if self.llada2:
            name = f"{layer}.attention.query_key_value"
            all_heads = x @ self.w[name].T + self.w.get(f"{name}.bias", 0)
            parts = np.split(all_heads, np.cumsum(counts)[:2] * self.width, axis=-1)
            norms = [f"{layer}.attention.{part}_layernorm" for part in ("query", "key")]
        else:
            names = [f"{layer}.self_attn.{part}_proj" for part in "qkv"]
            parts = [x @ self.w[name].T + self.w.get(f"{name}.bias", 0) for name in names]
            norms = [f"{layer}.self_attn.{part}_norm" for part in "qk"]
        q, k, v = (np.split(part, n, axis=-1) for part, n in zip(parts, counts, strict=True))
        q = [self.turn(self.norm(head, norms[0])) for head in q]
        k = [self.turn(self.norm(head, norms[1])) for head in k]
        return q, k, v

    def attention(self, x, layer):
        """A column sees its own block and those before."""
        q, k, v = self.projected(x, layer)
        mixed = []
        for at, query in enumerate(q):
            shared = at // (self.heads // self.keys)
            scores = query @ k[shared].T / np.sqrt(self.width)
            for i in range(len(x)):
                for j in range(len(x)):
                    if j // self.block > i // self.block:
                        scores[i, j] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed.append(weights / weights.sum(axis=-1, keepdims=True) @ v[shared])
        name = f"{layer}.attention.dense" if self.llada2 else f"{layer}.self_attn.o_proj"
        return np.concatenate(mixed, axis=-1) @ self.w[name].T

    def chosen(self, row, layer):
        """Pairs of an expert and its weight."""
        c, logits = self.c, self.w[f"{layer}.mlp.gate"] @ row
        count = c["num_experts_per_tok"]
        if not self.llada2:
            chance = np.exp(logits) / np.exp(logits).sum()
            experts = np.argsort(-chance)[:count]
            total = chance[experts].sum() if c["norm_topk_prob"] else 1
            return [(expert, chance[expert] / total) for expert in experts]
        score = 1 / (1 + np.exp(-logits))
        biased = score + self.w[f"{layer}.mlp.gate.expert_bias"]
        groups = np.split(np.arange(c["num_experts"]), c["n_group"])
        best = sorted(groups, key=lambda own: -np.sort(biased[own])[-2:].sum())[: c["topk_group"]]
        experts = sorted(np.concatenate(best), key=lambda expert: -biased[expert])[:count]
        total = score[experts].sum() + 1e-20 if count > 1 else 1
        return [(e, score[e] / total * c["routed_scaling_factor"]) for e in experts]

    def experts(self, x, layer):
        out = np.zeros_like(x)
        for at, row in enumerate(x):
            for expert, weight in self.chosen(row, layer):
                out[at] += weight * self.gated(row, f"{layer}.mlp.experts.{expert}")
        shared = f"{layer}.mlp.shared_experts"
        return out + self.gated(x, shared) if f"{shared}.up_proj" in self.w else out

    def logits(self, ids):
        embedding = "model.word_embeddings" if self.llada2 else "model.embed_tokens"
        x = self.w[embedding][ids]
        for at in range(self.c["num_hidden_layers"]):
            layer = f"model.layers.{at}"
            x = x + self.attention(self.norm(x, f"{layer}.input_layernorm"), layer)
            rows = self.norm(x, f"{layer}.post_attention_layernorm")
            routed = f"{layer}.mlp.gate" in self.w
            x = x + (self.experts(rows, layer) if routed else self.gated(rows, f"{layer}.mlp"))
        return self.norm(x, "model.norm") @ self.w.get("lm_head", self.w[embedding]).T
