"""How does a model read each token once, while it writes?

    keys of x_1 … x_{t+1} = (keys of x_1 … x_t, key of x_{t+1})         and so for the values

In causal attention a token's key and value do not depend on what comes after it. A layer that sees
w tokens needs the last w - 1 of them, and the new one.

Axes: B texts, G heads of keys and values, T new tokens, S tokens so far, D channels of a head.
Derived in the chapters `gpt/cache` and `today/long_context` (windows).
"""

import torch
from torch import Tensor
from torch.nn import functional


class KeyValueCache:
    """The keys and values of the tokens so far, so that they are computed once.

    One belongs to one attention module and one batch. In causal attention the keys and values of
    a prefix do not change when the text goes on; that is all that it relies on.

    Memory grows with the text: where the room is full, it is doubled, so that a token is copied a
    few times, however long the text becomes.

    Args:
        limit: the most tokens that may come.
    Latent attention hands over its latents as keys and its rotated key as values. Derived in the
    chapter `gpt/cache`.
    """

    def __init__(self, limit: int):
        self.limit, self.length = limit, 0
        self._stored: tuple[Tensor, Tensor] | None = None

    @property
    def n_bytes(self) -> int:
        """How many bytes the keys and values that are kept take, all texts together."""
        if self._stored is None:
            return 0
        return sum(part[..., : self.length, :].nbytes for part in self._stored)

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, G, T, D); return those of all so far, (B, G, S, D).

        Raises:
            ValueError: there is no room left, or the batch is not that of the tokens before.
        """
        end = self._end_with(keys)
        all_keys, all_values = self._stored or (keys[..., :0, :], values[..., :0, :])
        if end > all_keys.shape[-2]:
            more = min(self.limit, max(end, 2 * self.length)) - self.length
            all_keys, all_values = self._stored = (
                functional.pad(all_keys[..., : self.length, :], (0, 0, 0, more)),
                functional.pad(all_values[..., : self.length, :], (0, 0, 0, more)),
            )
        all_keys[..., self.length : end, :] = keys
        all_values[..., self.length : end, :] = values
        self.length = end
        return all_keys[..., :end, :], all_values[..., :end, :]

    def _end_with(self, keys: Tensor) -> int:
        """How many tokens there will be; refuses those that do not fit."""
        end = self.length + keys.shape[-2]
        if end > self.limit:
            raise ValueError(f"expected at most {self.limit} tokens in the cache, got {end}")
        if self._stored is not None and keys.shape[:-2] != self._stored[0].shape[:-2]:
            begun = f"expected the {len(self._stored[0])} texts that the cache was begun with"
            raise ValueError(f"{begun}, got {len(keys)}; begin a new cache for another batch")
        return end


class WindowCache(KeyValueCache):
    """The keys and values of the last window - 1 tokens, for a layer that sees no others.

    `length` still counts all tokens: it tells at which position the next one stands. It cannot be
    set back to fewer: what has left the window is gone.

    Args:
        limit: for how many tokens there will be positions.
        window: how many tokens the layer sees, the newest included; at least 1.
    Source: Jiang et al. 2023 (Mistral 7B), section 2, the rolling buffer; theirs keeps one more.
    """

    def __init__(self, limit: int, window: int):
        super().__init__(limit)
        self.window = window

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens; return them behind those kept, (B, G, at most w - 1 + T, D).

        Raises:
            ValueError: as `KeyValueCache.extend`.
        """
        self.length = self._end_with(keys)
        if self._stored is not None:
            keys = torch.cat([self._stored[0], keys], -2)
            values = torch.cat([self._stored[1], values], -2)
        first = max(0, keys.shape[-2] - (self.window - 1))
        self._stored = keys[..., first:, :].clone(), values[..., first:, :].clone()
        return keys, values
