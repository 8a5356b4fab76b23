"""How does a model read a text token by token, and how far back does its state depend on it?

    RNN                 h_t      = tanh(W E[x_t] + U h_{t-1} + b)          all tokens, one by one
    LSTM                c_t      = f_t c_{t-1} + i_t g_t,   h_t = o_t tanh(c_t)     gates f, i, o
    CausalConvolution   y_t      = sum_{k < w} W_k u_{t-k} + b       layer on layer, added to u_t

All map ids (B, T) to logits (B, T, V). The row at position t scores the token *after* `ids[:, t]`
and depends on `ids[:, :t + 1]` only. They turn what they have read into a state, (B, T, H), and
`input_gradients` measures how far back a state depends on what was read.

Axes: B texts, T positions, w width, C channels, H state, V vocabulary.
Source: Elman 1990; Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
Derived in the chapter `attention/recurrence`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from ..tools.checks import check_batch, check_end


def rnn_step(
    x: Tensor, hidden: Tensor, *, input_weight: Tensor, hidden_weight: Tensor, bias: Tensor
) -> Tensor:
    """One step of a simple recurrent network: tanh(W x + U h + b).

    One number each, x = 3, h = 1, W = 1, U = -2, b = -1/2: tanh(3 - 2 - 1/2) = tanh(1/2) = 0.4621.

    Args:
        x: (..., C); the inputs of one position.
        hidden: (..., H); the state after the position before, zeros at the beginning.
        input_weight, hidden_weight, bias: W (H, C), U (H, H), b (H,).
    Returns:
        The next state, (..., H).
    Source: Elman 1990.
    """
    return torch.tanh(x @ input_weight.T + hidden @ hidden_weight.T + bias)


def lstm_step(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    *,
    input_weight: Tensor,
    hidden_weight: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: what the cell keeps, what it takes in, and what it shows.

    With all weights and biases zero the gates are 1/2 and nothing is taken in: the cell halves.

    Args:
        x: (..., C); the inputs of one position.
        state: the hidden state and the cell, (..., H) each, zeros at the beginning.
        input_weight, hidden_weight, bias: W (4H, C), U (4H, H), b (4H,); their quarters belong to
            the input gate i, the forget gate f, the candidate g and the output gate o, as in torch.
    Returns:
        The next hidden state o tanh(c) and the next cell c = f c + i g.
    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000 (the forget gate).
    """
    hidden, cell = state
    gates = x @ input_weight.T + hidden @ hidden_weight.T + bias  # (..., 4H)
    i, f, g, o = gates.chunk(4, -1)  # (..., H) each
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


class StateModel(nn.Module):
    """What all here have in common: ids -> embeddings -> states -> logits, each text by itself."""

    vocabulary_size: int
    end: int | None
    embedding: Any  # nn.Embedding, whose weight is an nn.Parameter
    dropout: nn.Module
    output: nn.Linear

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T)."""
        return self.unembed(self.states(ids))

    def states(self, ids: Tensor) -> Tensor:
        """The states of the last layer, (B, T, H), from ids, (B, T): each text is a row of its own.

        A text begins with the batch's row and with each end token. Rows are padded on the right,
        where no earlier position looks.
        """
        check_batch(ids, self.vocabulary_size)
        embedded = self.dropout(self.embedding(ids))  # (B, T, C)
        if self.end is None or not ids.numel():
            return self.states_from(embedded)
        begins = ids == self.end
        begins[:, 0] = True
        begins = begins.flatten()  # (B, T) -> (B * T)
        text = begins.cumsum(0) - 1  # which text a token belongs to, and which place it has there
        place = torch.arange(len(text), device=ids.device) - begins.nonzero().squeeze(-1)[text]
        rows = embedded.new_zeros(int(text[-1]) + 1, int(place.max()) + 1, embedded.shape[-1])
        rows[text, place] = embedded.flatten(0, 1)
        return self.states_from(rows)[text, place].unflatten(0, ids.shape)  # (B, T, H)

    def states_from(self, embedded: Tensor) -> Tensor:
        """The states of the last layer, (B, T, H), from embeddings, (B, T, C), of one text each."""
        raise NotImplementedError

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., H)."""
        return self.output(self.dropout(states))


class RNN(StateModel):
    """A simple recurrent language model: its state is all that it knows of the past.

    With `end`, the state is set back to zero before an end token is read, so nothing is carried
    from one text into the next: a text is scored alike in the middle of a stream and by itself.
    The texts of a batch run side by side then, each as long as the longest.

    The last layer begins at zero, so the model begins as the uniform one; tied, it cannot, and
    begins near it.

    Args:
        vocabulary_size: V.
        embedding_size: C, the channels of a token's embedding.
        hidden_size: H, the numbers in a state.
        layers: how many networks, each reading the states of the one below.
        tied: whether the output's weights are the embeddings; needs C = H.
        dropout: share of embeddings, of states between layers and of states before the output that
            training sets to zero (Zaremba et al. 2014); drawn from torch's global generator.
        end: id of the end token; None: the state is carried across the ends of texts.
        generator: draws the initial parameters; on the CPU.
    Raises:
        ValueError: C is not H though tied, `dropout` is out of range, or `end` is not in the
            vocabulary.
    """

    kind, causal, context_length = "rnn", True, None
    kernel: type[Any] = nn.RNN  # all steps of `rnn_step`, layer after layer

    def __init__(
        self,
        vocabulary_size: int,
        *,
        embedding_size: int,
        hidden_size: int,
        layers: int = 1,
        tied: bool = False,
        dropout: float = 0.0,
        end: int | None = None,
        generator: torch.Generator,
    ):
        super().__init__()
        sizes = {"embedding_size": embedding_size, "hidden_size": hidden_size, "layers": layers}
        check_end(end, vocabulary_size)
        if tied and embedding_size != hidden_size:
            raise ValueError(f"expected equal sizes, to be tied, got {sizes}")
        self.vocabulary_size, self.end = vocabulary_size, end
        own: dict[str, Any] = {"vocabulary_size": vocabulary_size, "tied": tied, "end": end}
        self.settings = own | sizes | {"dropout": dropout}
        between = dropout if layers > 1 else 0.0  # torch warns where there is no between
        self.embedding = skip_init(nn.Embedding, vocabulary_size, embedding_size)
        recurrence = self.kernel(
            embedding_size, hidden_size, layers, batch_first=True, dropout=between, device="meta"
        )
        self.recurrence = recurrence.to_empty(device="cpu")
        self.dropout = nn.Dropout(dropout)
        self.output = skip_init(nn.Linear, hidden_size, vocabulary_size)
        self._initialise(tied, generator)

    @torch.no_grad()
    def _initialise(self, tied: bool, generator: torch.Generator) -> None:
        self.embedding.weight.normal_(generator=generator)
        for weight, hidden_weight, *biases in self.recurrence.all_weights:
            weight.normal_(generator=generator).div_(math.sqrt(weight.shape[1]))
            # Orthogonal: what a state holds is turned, not shrunk (Saxe et al. 2014).
            for gate in hidden_weight.split(self.recurrence.hidden_size):
                nn.init.orthogonal_(gate, generator=generator)
            for bias in biases:
                bias.zero_()
        self.output.bias.zero_()
        if tied:
            self.output.weight = self.embedding.weight
            self.output.weight.div_(math.sqrt(self.output.in_features))
        else:
            self.output.weight.zero_()

    def states_from(self, embedded: Tensor) -> Tensor:
        """The hidden states of the last layer, (B, T, H), from embeddings, (B, T, C), of one text.

        They begin at zero at position 0, and only there: `end` is for `states` to see to.
        """
        return self.recurrence(embedded)[0]

    def layers(self) -> list[list[nn.Parameter]]:
        """The parameters by depth: embeddings, each layer, and the output."""
        above = [p for p in self.output.parameters() if p is not self.token_table]
        return [[self.token_table], *self.recurrence.all_weights, above]

    @property
    def channels(self) -> int:
        """H, the numbers in a state."""
        return self.recurrence.hidden_size

    @property
    def token_table(self) -> nn.Parameter:
        """The vectors of the tokens, (V, C)."""
        return self.embedding.weight


class LSTM(RNN):
    """A recurrent language model with long short-term memory: a cell that gates open and close.

    Its arguments are those of `RNN`; `end` sets hidden state and cell back.

    The biases of the forget gates begin at 1, so that a cell begins by keeping more than it
    forgets (Jozefowicz et al. 2015). torch has two biases where the equations have one: only their
    sum counts, and the second begins at zero.
    """

    kind = "lstm"
    kernel = nn.LSTM  # all steps of `lstm_step`

    @torch.no_grad()
    def _initialise(self, tied: bool, generator: torch.Generator) -> None:
        super()._initialise(tied, generator)
        for _, _, bias, _ in self.recurrence.all_weights:
            _, forget, _, _ = bias.chunk(4)
            forget.fill_(1.0)


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """y_t = sum over k < w of W_k x_{t-k}, plus b: the same small window at every position.

    Before the beginning there are zeros. With one channel, w = 2 and the weights (1, 10), oldest
    first, the inputs 1 2 3 become 10 21 32.

    Args:
        x: (..., T, C).
        weight: (C', C, w); `weight[:, :, -1]` meets the current input, `weight[:, :, 0]` the
            oldest, as in torch.
        bias: (C',).
    Returns:
        (..., T, C').
    """
    length, width = x.shape[-2], weight.shape[-1]
    padded = functional.pad(x, (0, 0, width - 1, 0))  # (..., w - 1 + T, C)
    terms = [padded[..., k : k + length, :] @ weight[:, :, k].T for k in range(width)]
    return sum(terms) + bias


class CausalConvolution(StateModel):
    """A stack of causal convolutions, each added to what it reads: u + convolution(activation(u)).

    It sees layers * (width - 1) + 1 tokens, the current one included. Before the beginning there
    are zeros. With `end`, the same holds of what stands before an end token, in every layer: a
    text is scored alike in the middle of a stream and by itself.

    The last layer begins at zero, so the model begins as the uniform one.

    Args:
        vocabulary_size: V.
        channels: C, of embeddings and states alike.
        width: w, how many positions a layer sees, the current one included.
        layers: how many convolutions.
        end: id of the end token; None: windows reach across the ends of texts.
        activation: applied before each convolution, elementwise; functional.gelu is another.
        generator: draws the initial parameters; on the CPU.
    Raises:
        ValueError: `end` is not in the vocabulary.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        channels: int,
        width: int,
        layers: int,
        end: int | None = None,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        generator: torch.Generator,
    ):
        super().__init__()
        check_end(end, vocabulary_size)
        self.vocabulary_size, self.end = vocabulary_size, end
        self.width, self.activation, self.dropout = width, activation, nn.Identity()
        self.embedding = skip_init(nn.Embedding, vocabulary_size, channels)
        self.convolutions = nn.ModuleList(
            skip_init(nn.Conv1d, channels, channels, width) for _ in range(layers)
        )
        self.output = skip_init(nn.Linear, channels, vocabulary_size)
        self._initialise(generator)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        self.embedding.weight.normal_(generator=generator)
        for convolution in self.convolutions:
            weight, bias = convolution.parameters()
            # Variance 2 / fan-in makes up for ReLU (He et al. 2015); all layers add that once.
            fan_in = weight[0].numel() * len(self.convolutions)
            weight.normal_(generator=generator).mul_(math.sqrt(2 / fan_in))
            bias.zero_()
        self.output.weight.zero_()
        self.output.bias.zero_()

    def states_from(self, embedded: Tensor) -> Tensor:
        """The states of the last layer, (B, T, C), from embeddings, (B, T, C), of one text."""
        x = embedded.transpose(-1, -2)  # (B, C, T), as torch's convolutions want it
        for convolution in self.convolutions:
            x = x + convolution(functional.pad(self.activation(x), (self.width - 1, 0)))
        return x.transpose(-1, -2)


def input_gradients(states: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """How strongly the last state depends on each input: |d states_T / d inputs_t|, Frobenius.

    A state that is the running sum of its inputs, C channels of them, depends on each of them by
    sqrt(C); one that is the current input depends on the others by 0.

    >>> input_gradients(lambda x: x.cumsum(1), torch.zeros(1, 3, 4))
    tensor([[2., 2., 2.]])

    Args:
        states: from (B, T, C) to (B, T, H), each text by itself: `model.states_from`, or any layer.
        inputs: (B, T, C); where the gradient is taken, such as `model.embedding(ids)`.
    Returns:
        (B, T); channels of the state per channel of the input. Nothing is left in `.grad`.
    """
    inputs = inputs.detach().requires_grad_()
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN's LSTM has no gradient in eval mode
        outputs = states(inputs)
        squares = torch.zeros_like(inputs[..., 0])  # (B, T)
        for last in outputs[:, -1].sum(0):  # one channel; no text depends on another
            (gradient,) = torch.autograd.grad(last, inputs, retain_graph=True)
            squares += gradient.square().sum(-1)  # (B, T, C) -> (B, T)
    return squares.sqrt()
