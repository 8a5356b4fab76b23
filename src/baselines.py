"""What does a first neural language model look like, and what is the least one that deserves it?

    SoftmaxBigram       logits_t = W[x_t]                softmax regression on a one-hot context
    WindowMLP           e_t      = (E[x_{t-k+1}], ..., E[x_t])       the last k tokens, embedded
                        logits_t = U relu(W e_t + b) + c
    RNN                 h_t      = tanh(W E[x_t] + U h_{t-1} + b)          all tokens, one by one
    LSTM                c_t      = f_t c_{t-1} + i_t g_t,   h_t = o_t tanh(c_t)     gates f, i, o
    CausalConvolution   y_t      = sum_{k < w} W_k u_{t-k} + b       layer on layer, added to u_t

All map ids (B, T) to logits (B, T, V). The row at position t scores the token *after* `ids[:, t]`
and depends on `ids[:, :t + 1]` only. None knows its loss, its optimiser or its tokenizer. The last
three turn what they have read into a state, (B, T, H), and `input_gradients` measures how far back
a state depends on what was read.

Axes: B texts, T positions, K window, w width, C channels, H state, V vocabulary.
Source: Bengio et al. 2003 (their direct connections left out, their tanh exchangeable); Elman 1990;
Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
Derived in the chapters `likelihood/neural` and `attention/recurrence`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from .likelihood import check_batch


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
        _check_sizes(vocabulary_size=vocabulary_size)
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
        ValueError: a size is below 1, or `end` is not in the vocabulary.
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
        _check_sizes(
            vocabulary_size=vocabulary_size,
            context_length=context_length,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
        )
        _check_end(end, vocabulary_size)
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


# --- Recurrence ---


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


class _Recurrent(nn.Module):
    """What RNN and LSTM share: everything but the step, which torch's kernels take."""

    def __init__(
        self,
        kernel: type[nn.RNNBase],
        vocabulary_size: int,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        tied: bool,
        dropout: float,
        end: int | None,
        generator: torch.Generator,
    ):
        super().__init__()
        _check_sizes(
            vocabulary_size=vocabulary_size,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            layers=layers,
        )
        _check_end(end, vocabulary_size)
        if tied and embedding_size != hidden_size:
            raise ValueError(
                "expected tied embeddings to be as long as the state they are compared with, got "
                f"embedding_size={embedding_size} and hidden_size={hidden_size}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"expected a dropout from 0 to below 1, got {dropout}")
        self.vocabulary_size, self.end = vocabulary_size, end
        between = dropout if layers > 1 else 0.0  # torch warns where there is no between
        options = {"num_layers": layers, "batch_first": True, "dropout": between, "device": "meta"}
        self.embedding = skip_init(nn.Embedding, vocabulary_size, embedding_size)
        self.recurrence = kernel(embedding_size, hidden_size, **options).to_empty(device="cpu")
        self.dropout = nn.Dropout(dropout)
        self.output = skip_init(nn.Linear, hidden_size, vocabulary_size)
        self._initialise(tied, generator)

    @torch.no_grad()
    def _initialise(self, tied: bool, generator: torch.Generator) -> None:
        self.embedding.weight.normal_(generator=generator)
        for name, parameter in self.recurrence.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
            elif name.startswith("weight_ih"):
                parameter.normal_(generator=generator).div_(math.sqrt(parameter.shape[1]))
            else:  # orthogonal: what a state holds is turned, not shrunk (Saxe et al. 2014)
                for gate in parameter.split(self.recurrence.hidden_size):
                    nn.init.orthogonal_(gate, generator=generator)
        self.output.bias.zero_()
        if tied:
            self.output.weight = self.embedding.weight
            self.output.weight.div_(math.sqrt(self.output.in_features))
        else:
            self.output.weight.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T)."""
        return self.unembed(self.states(ids))

    def states(self, ids: Tensor) -> Tensor:
        """The hidden states of the last layer, (B, T, H), from ids, (B, T)."""
        check_batch(ids, self.vocabulary_size)
        embedded = self.dropout(self.embedding(ids))  # (B, T, C)
        return _each_text_apart(self.states_from, embedded, ids, self.end)

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., H)."""
        return self.output(self.dropout(states))

    def states_from(self, embedded: Tensor) -> Tensor:
        """The hidden states of the last layer, (B, T, H), from embeddings, (B, T, C), of one text.

        They begin at zero at position 0, and only there: `end` is for `states` to see to.
        """
        return self.recurrence(embedded)[0]


class RNN(_Recurrent):
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
        ValueError: a size is below 1, C is not H though tied, `dropout` is out of range, or `end`
            is not in the vocabulary.
    """

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
        sizes = (vocabulary_size, embedding_size, hidden_size, layers)
        super().__init__(nn.RNN, *sizes, tied, dropout, end, generator)


class LSTM(_Recurrent):
    """A language model with long short-term memory: a cell that gates open and close.

    The biases of the forget gates begin at 1, so that a cell begins by keeping more than it
    forgets (Jozefowicz et al. 2015). torch has two biases where the equations have one: only their
    sum counts, and the second begins at zero.

    Args:
        vocabulary_size, embedding_size, hidden_size, layers, tied, dropout, end, generator: as in
            `RNN`, and `end` does the same, to hidden state and cell.
    Raises:
        ValueError: as `RNN`.
    """

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
        sizes = (vocabulary_size, embedding_size, hidden_size, layers)
        super().__init__(nn.LSTM, *sizes, tied, dropout, end, generator)
        with torch.no_grad():
            for layer in range(layers):
                _, forget, _, _ = getattr(self.recurrence, f"bias_ih_l{layer}").chunk(4)
                forget.fill_(1.0)


# --- Convolution ---


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


class CausalConvolution(nn.Module):
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
        ValueError: a size is below 1, or `end` is not in the vocabulary.
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
        _check_sizes(vocabulary_size=vocabulary_size, channels=channels, width=width, layers=layers)
        _check_end(end, vocabulary_size)
        self.vocabulary_size, self.end, self.activation = vocabulary_size, end, activation
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
            # Variance 2 / fan-in makes up for ReLU (He et al. 2015); all layers add that once.
            fan_in = convolution.weight[0].numel() * len(self.convolutions)
            convolution.weight.normal_(generator=generator).mul_(math.sqrt(2 / fan_in))
            convolution.bias.zero_()
        self.output.weight.zero_()
        self.output.bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the token after each token, (B, T, V), from ids, (B, T)."""
        return self.unembed(self.states(ids))

    def states(self, ids: Tensor) -> Tensor:
        """The states of the last layer, (B, T, C), from ids, (B, T)."""
        check_batch(ids, self.vocabulary_size)
        return _each_text_apart(self.states_from, self.embedding(ids), ids, self.end)

    def unembed(self, states: Tensor) -> Tensor:
        """Logits, (..., V), from states, (..., C)."""
        return self.output(states)

    def states_from(self, embedded: Tensor) -> Tensor:
        """The states of the last layer, (B, T, C), from embeddings, (B, T, C), of one text."""
        x = embedded.transpose(-1, -2)  # (B, C, T), as torch's convolutions want it
        for convolution in self.convolutions:
            padding = convolution.kernel_size[0] - 1
            x = x + convolution(functional.pad(self.activation(x), (padding, 0)))
        return x.transpose(-1, -2)


# --- How far back? ---


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
    Raises:
        ValueError: the inputs or the states are not of these shapes.
    """
    if inputs.ndim != 3:
        raise ValueError(f"expected inputs of shape (B, T, C), got {tuple(inputs.shape)}")
    inputs = inputs.detach().requires_grad_()
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN's LSTM has no gradient in eval mode
        outputs = states(inputs)
        if outputs.ndim != 3 or outputs.shape[:2] != inputs.shape[:2]:
            raise ValueError(
                f"expected states (B, T, H) = {(*inputs.shape[:2], 'H')} for inputs of shape "
                f"{tuple(inputs.shape)}, got {tuple(outputs.shape)}"
            )
        squares = torch.zeros_like(inputs[..., 0])  # (B, T)
        for last in outputs[:, -1].sum(0):  # one channel; no text depends on another
            (gradient,) = torch.autograd.grad(last, inputs, retain_graph=True)
            squares += gradient.square().sum(-1)  # (B, T, C) -> (B, T)
    return squares.sqrt()


# --- Checks, and what the models share ---


def _each_text_apart(
    states: Callable[[Tensor], Tensor], embedded: Tensor, ids: Tensor, end: int | None
) -> Tensor:
    """The states of a batch, (B, T, H), with each text run as a row of its own.

    A text begins with the batch's row and with each end token. Rows are padded on the right, where
    no earlier position looks.
    """
    if end is None or not ids.numel():
        return states(embedded)
    begins = ids == end
    begins[:, 0] = True
    begins = begins.flatten()  # (B, T) -> (B * T)
    text = begins.cumsum(0) - 1  # which text a token belongs to, and which place it has there
    place = torch.arange(len(text), device=ids.device) - begins.nonzero().squeeze(-1)[text]
    rows = embedded.new_zeros(int(text[-1]) + 1, int(place.max()) + 1, embedded.shape[-1])
    rows[text, place] = embedded.flatten(0, 1)
    return states(rows)[text, place].unflatten(0, ids.shape)  # (B * T, H) -> (B, T, H)


def _check_end(end: int | None, vocabulary_size: int) -> None:
    if end is not None and not 0 <= end < vocabulary_size:
        raise ValueError(
            f"expected an end token from 0 to {vocabulary_size - 1}, the vocabulary, got {end}"
        )


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"expected {name} to be at least 1, got {size}")
