"""How does a model read each token once, while it writes?

    keys of x_1 … x_{t+1} = (keys of x_1 … x_t, key of x_{t+1})         and so for the values

In causal attention a token's key and value do not depend on what comes after it.

Axes: B texts, G heads of keys and values, T new tokens, S tokens so far, D channels of a head.
Derived in the chapter `gpt/cache`.
"""

from torch import Tensor


class KeyValueCache:
    """The keys and values of the tokens so far, so that they are computed once.

    One belongs to one attention module and one batch. In causal attention the keys and values of
    a prefix do not change when the text goes on; that is all that it relies on.

    Args:
        limit: for how many tokens there will be room.
    Latent attention hands over its latents as keys and its rotated key as values; for windows, all
    is kept. Derived in the chapter `gpt/cache`.
    """

    def __init__(self, limit: int):
        self.limit, self.length = limit, 0
        self._stored: tuple[Tensor, Tensor] | None = None

    @property
    def n_bytes(self) -> int:
        """How many bytes the keys and values of the tokens so far take, all texts together."""
        if self._stored is None:
            return 0
        return sum(part[..., : self.length, :].nbytes for part in self._stored)

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, G, T, D); return those of all so far, (B, G, S, D).

        Raises:
            ValueError: there is no room left, or the batch is not that of the tokens before.
        """
        end = self.length + keys.shape[-2]
        if end > self.limit:
            raise ValueError(
                f"expected at most {self.limit} tokens in the cache, its limit, got {self.length} "
                f"and {keys.shape[-2]} more"
            )
        if self._stored is None:
            rooms = [(*part.shape[:-2], self.limit, part.shape[-1]) for part in (keys, values)]
            self._stored = keys.new_empty(rooms[0]), values.new_empty(rooms[1])
        all_keys, all_values = self._stored
        if keys.shape[:-2] != all_keys.shape[:-2]:
            raise ValueError(
                f"expected tokens of the {len(all_keys)} texts that the cache was begun with, "
                f"got a batch of {len(keys)}; begin a new cache for another batch"
            )
        all_keys[..., self.length : end, :] = keys
        all_values[..., self.length : end, :] = values
        self.length = end
        return all_keys[..., :end, :], all_values[..., :end, :]
