"""What does a first neural language model look like, and what is the least one that deserves it?

    SoftmaxBigram       logits_t = W[x_t]                softmax regression on a one-hot context
    WindowMLP           e_t      = (E[x_{t-k+1}], ..., E[x_t])       the last k tokens, embedded
                        logits_t = U relu(W e_t + b) + c

Both map ids (B, T) to logits (B, T, V). The row at position t scores the token *after* `ids[:, t]`
and depends on `ids[:, :t + 1]` only. None knows its loss, its optimiser or its tokenizer.

Axes: B texts, T positions, K window, C channels, V vocabulary.
Source: Bengio et al. 2003 (their direct connections left out, their tanh exchangeable).
Derived in the chapters `likelihood/gradient_descent` and `likelihood/neural`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from ..tools.checks import check_batch, check_end


class SoftmaxBigram(nn.Module):
    """Softmax regression on a one-hot context: a table of logits, one row for each token.

    It begins as the uniform model, all logits zero. Its loss is convex, so any start would do.

    >>> SoftmaxBigram(5)(torch.tensor([[3, 1]])).shape
    torch.Size([1, 2, 5])

    Args:
        vocabulary_size: V.
    """

    def __init__(self, vocabulary_size: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocabulary_size, vocabulary_size))

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T)."""
        check_batch(ids, len(self.table))
        return functional.embedding(ids, self.table)  # row x of the table = one-hot(x) @ table


class WindowMLP(nn.Module):
    """One hidden layer over the embeddings of the last `context_length` tokens.

    Where the window reaches back beyond the ids it was given, it holds a *padding* token of the
    model's own, with an embedding that is learnt like any other. It is not the end token: that one
    says "a text begins here", padding says "what came before is not known". With `end`, whatever
    stands before an end token is padding as well, so no window looks into the previous text, and
    a text is scored alike in the middle of a stream and by itself.

    The last layer begins at zero, so the model begins as the uniform one: its first loss is log V.

    Args:
        vocabulary_size: V.
        context_length: K; how many tokens it sees, the current one included.
        embedding_size: channels of a token's embedding.
        hidden_size: channels of the hidden layer.
        end: id of the end token; None: windows reach across the ends of texts.
        activation: applied to the hidden layer, elementwise.
        generator: draws the initial parameters; on the CPU.
    Raises:
        ValueError: `end` is not in the vocabulary.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        context_length: int,
        embedding_size: int,
        hidden_size: int,
        end: int | None = None,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        generator: torch.Generator,
    ):
        super().__init__()
        check_end(end, vocabulary_size)
        self.vocabulary_size, self.context_length = vocabulary_size, context_length
        self.end, self.activation = end, activation
        # skip_init: the layers' own initialisation would draw from the global generator.
        self.embedding = skip_init(nn.Embedding, vocabulary_size + 1, embedding_size)
        self.hidden = skip_init(nn.Linear, context_length * embedding_size, hidden_size)
        self.output = skip_init(nn.Linear, hidden_size, vocabulary_size)
        self._initialise(generator)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        # Pre-activations of variance 2, so that ReLU, which halves it, hands on 1 (He et al. 2015).
        self.embedding.weight.normal_(generator=generator)
        self.hidden.weight.normal_(generator=generator)
        self.hidden.weight.mul_(math.sqrt(2 / self.hidden.in_features))
        for parameter in (self.hidden.bias, self.output.weight, self.output.bias):
            parameter.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T)."""
        check_batch(ids, self.vocabulary_size)
        embedded = self.embedding(self.windows(ids)).flatten(-2)  # (B, T, K, C) -> (B, T, K * C)
        return self.output(self.activation(self.hidden(embedded)))

    def windows(self, ids: Tensor) -> Tensor:
        """The last K tokens up to and with each position, (B, T, K), oldest first.

        Padding has the id V. With K = 3 and the end token 0, the text 5 0 7 gives
        (V V 5), (V V 0), (V 0 7).
        """
        padding = ids.new_full((len(ids), self.context_length - 1), self.vocabulary_size)
        result = torch.cat([padding, ids], 1).unfold(1, self.context_length, 1)  # (B, T, K)
        if self.end is None:
            return result
        ends = (result == self.end).long()
        ends_from_here_on = ends.flip(-1).cumsum(-1).flip(-1)
        return result.masked_fill(ends_from_here_on > ends, self.vocabulary_size)
