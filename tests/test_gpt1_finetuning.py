"""`src.gpt.gpt1_finetuning` against loops over examples and tokens, and what a task must not
disturb.
"""

import json
import math
import random
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import tensor
from torch.nn.functional import cross_entropy

from next_token import tuned as tuned_models
from src.attention.recurrence import LSTM, RNN
from src.gpt import gpt1_finetuning
from src.gpt.backbones import NEW_TOKENS, distance, transferred, with_new_tokens
from src.gpt.both_sides import EncoderDecoderLM, EncoderLM
from src.gpt.gpt1_finetuning import (
    FinetuneConfig,
    TaskModel,
    accuracy,
    finetune,
    loss_parts,
    predict,
)
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.input_forms import InputForms, sequences
from src.texts.labelled import FAMILIES, Example, Task
from src.tokens.bytes import WordTokenizer
from src.tokens.files import save as save_tokenizer

NEUTRAL = ["the", "cat", "dog", "fox", "sat", "ran", "on", "under", "mat", "log"]
WORDS = [*NEUTRAL, "good", "bad"]
TOKENIZER = WordTokenizer(WORDS)
V, T, C, LAYERS = TOKENIZER.vocabulary_size, 23, 10, 3  # V = 16
LABELS = {family: ("no", "maybe", "yes") for family in FAMILIES}
TEXTS = {
    "classification": [("the cat sat",), ("dog",), ("the fox ran under the log on the mat",)],
    "entailment": [("the cat sat on", "cat"), ("dog ran", "the dog sat"), ("fox", "bad fox good")],
    "similarity": [("the cat sat on", "cat"), ("dog ran", "the dog sat"), ("fox", "bad fox good")],
    "choice": [
        ("the cat", "sat", "ran under the log", "on"),
        ("the dog ran on", "the mat", "log", "fox"),
        ("fox", "good", "bad", "the cat ran"),
    ],
}


def new_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gpt(seed=0, **options):
    sizes = {"context_length": T, "layers": LAYERS, "heads": 2, "channels": C}
    return GPT(GPTConfig(V, **(sizes | options)), generator=new_generator(seed))


def recurrent(kind=LSTM, seed=0, **options):
    sizes = {"embedding_size": 7, "hidden_size": C, "layers": LAYERS, "end": 3}
    model = kind(V, **(sizes | options), generator=new_generator(seed))
    if not options.get("tied"):  # as after some training: it begins at zero
        with torch.no_grad():
            model.output.weight.normal_(generator=new_generator(seed + 1))
    return model


BACKBONES = {
    "gpt": gpt,
    "gpt untied": lambda seed=0: gpt(seed, tied=False),
    "gpt post-norm": lambda seed=0: gpt(seed, norm="post", scaled_residuals=False),
    "lstm": lambda seed=0: recurrent(LSTM, seed),
    "lstm tied": lambda seed=0: recurrent(seed=seed, tied=True, embedding_size=C),
    "rnn": lambda seed=0: recurrent(RNN, seed),
}
SEE_BOTH_SIDES = {
    "encoder": lambda seed=0: EncoderLM(gpt().config, generator=new_generator(seed)),
    "encoder with segments": lambda seed=0: EncoderLM(
        gpt().config, segments=2, generator=new_generator(seed)
    ),
    "encoder-decoder": lambda seed=0: EncoderDecoderLM(
        gpt().config, start=3, padding=1, generator=new_generator(seed)
    ),
}
MODELS = BACKBONES | SEE_BOTH_SIDES
backbones = pytest.mark.parametrize("name", BACKBONES)
both_sides = pytest.mark.parametrize("name", SEE_BOTH_SIDES)
models = pytest.mark.parametrize("name", MODELS)
families = pytest.mark.parametrize("family", FAMILIES)


def forms_of(family, **options):
    return InputForms(family, LABELS[family], TOKENIZER, **options)


def task_model(family, name="gpt", dropout=0.0, seed=0):
    """In float64, with a head that is not near zero."""
    generator = new_generator(seed)
    grown = with_new_tokens(MODELS[name]().double(), generator=generator)
    model = TaskModel(grown, family, 3, dropout=dropout, generator=generator)
    with torch.no_grad():
        model.head.weight.normal_(generator=generator)
        model.head.bias.normal_(generator=generator)
    return model


def batch_of(family, labels=(2, 0, 1)):
    return forms_of(family).tensors(TEXTS[family]), tensor(labels)


def said(n, seed, longest=9):
    """n different texts of 3 words or more, of which one is good or bad; (texts, label)."""
    rng, found = random.Random(seed), {}
    while len(found) < n:
        label = len(found) % 2
        text = rng.choices(NEUTRAL, k=rng.randint(2, longest - 1))
        text.insert(rng.randrange(len(text)), ("bad", "good")[label])
        found[" ".join(text)] = label
    return [Example((text,), label) for text, label in found.items()]


def toy_task(n=64, seed=0):
    """A word decides."""
    examples = tuple(said(n + 80, seed))
    parts = examples[:n], examples[n : n + 40], examples[n + 40 :]
    return Task("toy", "classification", ("blame", "praise"), *parts)


def tune(backbone=None, task=None, after=None, **options):
    config = FinetuneConfig(**({"steps": 3, "every": 3, "batch_size": 5} | options))
    data = TOKENIZER, task or toy_task(), config
    return finetune(backbone or gpt(), *data, after=after, progress=False)


def nats_of_labels(tuned, examples):
    """The mean surprise of the right labels."""
    probs = predict(tuned, [e.texts for e in examples])
    return float(-probs[range(len(probs)), [e.label for e in examples]].log().mean())


@both_sides
def test_a_model_that_sees_both_sides_learns_a_task_but_has_no_language_to_learn(name):
    tuned = tune(MODELS[name](), steps=150, every=50, learning_rate=5e-3, auxiliary=0)
    assert accuracy(tuned, toy_task().test) > 0.9
    with pytest.raises(ValueError, match=r"auxiliary=0 for an Encoder.*got 0\.5"):
        tune(MODELS[name]())
    with pytest.raises(ValueError, match="lengths for a model that looks to the right"):
        tuned.model.states(torch.ones(1, 1, 5, dtype=torch.long))


# input forms


def test_the_four_forms_are_those_of_the_paper():
    start, delim, extract = 10, 11, 12
    a, b, c = [5, 6], [7], [8, 9, 4]
    pair = [start, 5, 6, delim, 7, extract]
    forms = {
        "classification": ([a], [[start, 5, 6, extract]]),
        "entailment": ([a, b], [pair]),
        "similarity": ([a, b], [pair, [start, 7, delim, 5, 6, extract]]),
        "choice": ([a, b, c], [pair, [start, 5, 6, delim, 8, 9, 4, extract]]),
    }
    for family, (texts, expected) in forms.items():
        assert sequences(family, texts, vocabulary_size=10) == expected
    for family, texts in (("classification", [a, b]), ("regression", [a]), ("similarity", [a])):
        with pytest.raises(ValueError, match=f"got '{family}' and {len(texts)}"):
            sequences(family, texts, vocabulary_size=10)


def test_a_text_that_is_too_long_is_refused_with_all_numbers_and_one_that_just_fits_is_taken():
    forms = forms_of("classification", context_length=6)
    message = r"at most 4 tokens.*context of 6.*got 2 of 3.*up to 9: cut=True"
    with pytest.raises(ValueError, match=message):
        forms.tensors([("cat",), ("the cat " * 4 + "sat",), ("the cat sat on mat",)])
    assert forms.tensors([("the cat sat on",)])[1].tolist() == [[6]]


@pytest.mark.parametrize(
    ("context_length", "texts", "kept"),
    [
        (10, ("the cat sat on", "dog ran"), ("the cat sat on", "dog ran")),  # 6 fit into 7
        (8, ("the cat sat on", "dog ran"), ("the cat sat", "dog ran")),  # only the longer one
        (8, ("dog ran", "the cat sat on"), ("dog ran", "the cat sat")),
        (9, ("the cat sat on mat", "the dog ran on log"), ("the cat sat", "the dog ran")),
        (10, ("the cat sat on mat", "the dog ran on log"), ("the cat sat", "the dog ran")),
        # choices are cut alike, and keep one context
        (7, ("the cat sat", "on", "under the mat", "log"), ("the cat", "on", "under the", "log")),
    ],
)
def test_on_request_the_longer_text_is_cut_at_its_end(context_length, texts, kept):
    family = "entailment" if len(texts) == 2 else "choice"
    cut = forms_of(family, context_length=context_length, cut=True).tensors([texts])
    assert all(map(torch.equal, cut, forms_of(family).tensors([kept])))


# backbones


@models
def test_new_tokens_change_no_state_and_no_logit_of_the_others(name):
    old = MODELS[name]().double().eval()
    grown = with_new_tokens(old, 3, generator=new_generator())
    ids = torch.randint(V, (2, 11), generator=new_generator())
    assert len(grown.token_table) == grown.vocabulary_size == V + 3
    assert torch.equal(grown.token_table[:V], old.token_table)
    if name in SEE_BOTH_SIDES:
        lengths = tensor([11, 7])
        assert torch.equal(grown.extracted(ids, lengths), old.extracted(ids, lengths))
        return
    assert torch.equal(grown.states(ids), old.states(ids))
    assert torch.allclose(grown(ids)[..., :V], old(ids), rtol=0, atol=1e-12)
    assert grown(ids + 3).shape == (2, 11, V + 3)


@pytest.mark.parametrize("seed", range(3))
def test_new_tokens_are_as_long_as_the_others_and_drawn(seed):
    old = gpt(channels=1000)
    one, other = (with_new_tokens(old, generator=new_generator(seed + n)) for n in (0, 9))
    new = one.embedding[V:]
    assert new.shape == (NEW_TOKENS, 1000)
    assert float(new.detach().std() / old.embedding.detach().std()) == pytest.approx(1, abs=0.1)
    assert not torch.equal(new, other.embedding[V:])


@pytest.mark.parametrize("training", [True, False])
def test_a_copy_with_new_tokens_keeps_mode_and_dropout_and_stays_tied(training):
    tied = recurrent(dropout=0.3, tied=True, embedding_size=C)
    for old in (gpt(dropout=0.3), recurrent(dropout=0.3), tied):
        grown = with_new_tokens(old.train(training), generator=new_generator())
        assert grown.training == training
        assert grown.dropout.p == 0.3
    assert grown.output.weight is grown.embedding.weight


CODERS = ("encoder", "decoder")
OUTPUT, LOOKED_UP = {"output.weight", "output.bias"}, {"embedding", "positions.table"}
LAST = {side: {f"{side}.final_norm.gain", f"{side}.final_norm.bias"} for side in CODERS}
# Written by hand: a model's parameters below all blocks, above all blocks, and where block i is.
DEPTHS = {
    "gpt": (LOOKED_UP, LAST["decoder"], ["decoder.blocks.{}."]),
    "gpt untied": (LOOKED_UP, LAST["decoder"] | {"unembedding.weight"}, ["decoder.blocks.{}."]),
    "gpt post-norm": (LOOKED_UP, set(), ["decoder.blocks.{}."]),
    "rnn": ({"embedding.weight"}, OUTPUT, ["_l{}"]),
    "lstm": ({"embedding.weight"}, OUTPUT, ["_l{}"]),
    "lstm tied": ({"embedding.weight"}, {"output.bias"}, ["_l{}"]),
    "encoder": (LOOKED_UP, LAST["encoder"], ["encoder.blocks.{}."]),
    "encoder with segments": (LOOKED_UP | {"segments"}, LAST["encoder"], ["encoder.blocks.{}."]),
    "encoder-decoder": (
        {"source_embedding", "source_positions.table", "target_positions.table"},
        LAST["decoder"] | LAST["encoder"],
        ["encoder.blocks.{}.", "decoder.blocks.{}."],
    ),
}


def depth_by_hand(name, parameter_name):
    """0 below the blocks, 1 to LAYERS in them, LAYERS + 1 above; not from `parts`."""
    below, above, places = DEPTHS[name]
    if parameter_name in below:
        return 0
    if parameter_name in above:
        return LAYERS + 1
    found = [i + 1 for i in range(LAYERS) for p in places if p.format(i) in parameter_name]
    assert len(found) == 1, parameter_name
    return found[0]


@models
@pytest.mark.parametrize("layers", range(LAYERS + 1))
def test_exactly_the_parameters_up_to_a_layer_are_transferred(name, layers):
    old, fresh = MODELS[name](0), MODELS[name](5)
    with torch.no_grad():
        for model, value in ((old, 1.0), (fresh, 2.0)):
            for parameter in model.parameters():
                parameter.fill_(value)
    result = dict(transferred(old, fresh, layers=layers).named_parameters())
    limit = LAYERS + 1 if layers == LAYERS else layers
    for parameter_name, value in result.items():
        taken = depth_by_hand(name, parameter_name) <= limit
        assert (value == (1.0 if taken else 2.0)).all(), parameter_name
    assert all((p == 2.0).all() for p in fresh.parameters())


def test_a_distance_is_euclidean_and_does_not_count_new_tokens():
    """Two parameters moved, by 3 and by 4: the distance is 5."""
    old = gpt()
    grown = with_new_tokens(old, generator=new_generator())
    assert distance(old, grown) == 0
    with torch.no_grad():
        grown.embedding[4, 2] += 3
        grown.decoder.blocks[1].feed_forward.expand.bias[5] += 4
        grown.embedding[V + 1] += 7
    assert distance(old, grown) == pytest.approx(5, rel=1e-5)


# model and loss


@pytest.mark.parametrize("name", ["gpt", "gpt untied", "lstm", "lstm tied"])
@families
def test_the_losses_are_those_of_a_loop_without_padding(family, name):
    model, (inputs, labels) = task_model(family, name), batch_of(family)
    of_task, of_language = loss_parts(model, (inputs, labels))
    for n, texts in enumerate(TEXTS[family]):
        read = sequences(family, [TOKENIZER.encode(t) for t in texts], vocabulary_size=V)
        extracted, means = [], []
        for sequence in read:
            states = model.backbone.states(tensor([sequence]))[0]
            extracted.append(states[-1])
            logits = model.backbone.unembed(states[:-1])
            means.append(cross_entropy(logits, tensor(sequence[1:])))
        if family == "choice":
            logits = torch.cat([model.head(state) for state in extracted])
        else:
            logits = model.head(sum(extracted))
        assert torch.allclose(of_task[n], cross_entropy(logits, labels[n]), rtol=0, atol=1e-10)
        assert torch.allclose(of_language[n], sum(means) / len(means), rtol=0, atol=1e-10)


@models
@families
def test_padding_and_batch_mates_change_nothing(family, name):
    model, forms = task_model(family, name), forms_of(family)
    (ids, lengths), labels = batch_of(family)
    together = model(ids, lengths)
    longer = torch.cat([ids, torch.full((*ids.shape[:2], 4), 5)], -1)
    assert torch.allclose(model(longer, lengths), together, rtol=0, atol=1e-10)
    for n, texts in enumerate(TEXTS[family]):
        assert torch.allclose(model(*forms.tensors([texts]))[0], together[n], rtol=0, atol=1e-10)
    of_task, _ = loss_parts(model, ((longer, lengths), labels), language=False)
    expected = cross_entropy(together, labels, reduction="none")
    assert torch.allclose(of_task, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("family", "counts"), [("similarity", False), ("entailment", True)])
def test_the_order_of_a_pair_counts_for_entailment_only(family, counts):
    model, forms = task_model(family), forms_of(family)
    swapped = [(b, a) for a, b in TEXTS[family]]
    one, other = (model(*forms.tensors(texts)) for texts in (TEXTS[family], swapped))
    change = (one - other).abs().amax(-1)
    assert change.min() > 0.01 if counts else change.max() < 1e-12


def test_choices_in_another_order_have_the_same_probabilities_in_that_order():
    model, forms = task_model("choice"), forms_of("choice")
    moved = [(context, c, a, b) for context, a, b, c in TEXTS["choice"]]
    one, other = (model(*forms.tensors(texts)).softmax(-1) for texts in (TEXTS["choice"], moved))
    assert torch.allclose(one[:, [2, 0, 1]], other, rtol=0, atol=1e-12)


def test_dropout_falls_alike_on_all_choices():
    """Two equal choices are equally likely, whatever was dropped."""
    model, forms = task_model("choice", dropout=0.5).train(), forms_of("choice")
    logits = model(*forms.tensors([("the cat", "sat", "sat", "ran")] * 7))
    assert torch.allclose(logits[:, 0], logits[:, 1], rtol=0, atol=1e-12)
    assert logits[:, 0].std() > 0.01


def test_a_head_begins_small():
    grown = with_new_tokens(gpt(channels=1000), generator=new_generator())
    head = TaskModel(grown, "classification", 3, generator=new_generator()).head
    assert float(head.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert not head.bias.any()


@pytest.mark.parametrize("auxiliary", [0.0, 0.7])
def test_training_adds_lambda_times_the_language_models_loss_to_the_tasks(auxiliary):
    """One step of one batch, at a learning rate of 0, so that the model is as it was."""
    task, options = toy_task(12), {"dropout": 0.0, "learning_rate": 0.0, "auxiliary": auxiliary}
    tuned = tune(task=task, steps=1, batch_size=12, **options)
    batch = (
        tuned.forms.tensors([e.texts for e in task.train]),
        tensor([e.label for e in task.train]),
    )
    of_task, of_language = loss_parts(tuned.model, batch)
    expected = (of_task + auxiliary * of_language).mean().item()
    assert tuned.history.losses == [pytest.approx(expected, rel=1e-5)]


@pytest.mark.parametrize("auxiliary", [0.0, 0.7])
def test_validation_looks_at_the_labels_only(auxiliary):
    tuned = tune(auxiliary=auxiliary, learning_rate=0.0)
    expected = nats_of_labels(tuned, toy_task().validation)
    assert tuned.history.validation[0] == pytest.approx(expected, rel=1e-5)


# fine-tuning


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_a_task_that_one_word_decides_is_learnt(kind, seed):
    sizes = {"embedding_size": 32, "hidden_size": 32, "layers": 1, "tied": True}
    backbone = (
        recurrent(LSTM, seed, **sizes) if kind == "lstm" else gpt(seed, channels=32, layers=1)
    )
    task = toy_task(200, seed=seed)
    settings = {"steps": 100, "every": 20, "batch_size": 32, "learning_rate": 0.01, "seed": seed}
    assert accuracy(tune(backbone, task, **settings), task.test) > 0.95


@pytest.fixture
def keep_the_last(monkeypatch):
    """A run ends with the parameters of its last step, however good those before it were."""
    whole = gpt1_finetuning.fit
    monkeypatch.setattr(
        gpt1_finetuning, "fit", lambda *data, **given: whole(*data, **given | {"keep_best": False})
    )


@models
@pytest.mark.parametrize("frozen", range(LAYERS + 1))
@pytest.mark.usefixtures("keep_the_last")
def test_frozen_parameters_do_not_change_by_a_bit_and_all_others_do(name, frozen):
    before = MODELS[name]()
    tuned = tune(before, frozen=frozen, weight_decay=0.5, auxiliary=0.5 * before.causal)
    limit = {0: -1, LAYERS: LAYERS + 1}.get(frozen, frozen)
    own = dict(tuned.model.backbone.named_parameters())
    began = with_new_tokens(before, generator=new_generator())  # the same draws
    for parameter_name, old in began.named_parameters():
        new = own[parameter_name]
        if old is began.token_table:
            assert torch.equal(new[:V], old[:V]) == bool(frozen)
            assert not torch.equal(new[V:], old[V:])
        elif not parameter_name.endswith("qkv.bias"):  # a key's bias has no gradient to speak of
            fixed = depth_by_hand(name, parameter_name) <= limit
            assert torch.equal(new, old) == fixed, parameter_name
    assert all(p.requires_grad for p in tuned.model.parameters())
    assert not any(p._backward_hooks for p in tuned.model.parameters())
    assert tuned.model.head.bias.any()


def test_the_backbone_itself_is_not_changed():
    backbone = gpt()
    tune(backbone)
    assert all(map(torch.equal, backbone.parameters(), gpt().parameters()))


@pytest.mark.usefixtures("keep_the_last")
def test_with_the_head_first_the_rest_waits():
    """In the head's steps the old parameters stay where they were; the hook counts them, too."""
    backbone, seen = gpt(), []

    def look(step, model):
        seen.append((step, distance(backbone, model.backbone)))

    tuned = tune(backbone, after=look, head_first=4, steps=6, every=2, learning_rate=0.01)
    assert [step for step, _ in seen] == [*range(11)]
    assert [far > 0 for _, far in seen] == [False] * 5 + [True] * 6
    assert len(tuned.history.losses) == 10
    assert sorted(tuned.history.validation) == [0, 2, 4, 6, 8, 10]


def test_the_parameters_of_the_least_validation_loss_are_kept():
    task = toy_task(4)
    tuned = tune(task=task, steps=60, every=5, learning_rate=0.03)
    least = min(tuned.history.validation.values())
    assert nats_of_labels(tuned, task.validation) == pytest.approx(least, rel=1e-5)
    assert least < tuned.history.validation[60] - 0.01


def test_a_seed_repeats_a_run_whatever_was_drawn_before_and_leaves_the_global_generator():
    runs = []
    for global_seed, seed in ((11, 1), (12, 1), (11, 2)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        runs.append(tune(dropout=0.5, seed=seed).history)
        assert torch.equal(torch.get_rng_state(), before)
    assert runs[0] == runs[1]
    assert runs[0].losses != runs[2].losses


def test_decay_and_schedule_are_those_of_the_settings(monkeypatch):
    """Of 8 steps a quarter rises: 1/2, 1, and then seven equal steps down to 0."""
    fit = Mock(side_effect=gpt1_finetuning.fit)
    monkeypatch.setattr(gpt1_finetuning, "fit", fit)
    tune(steps=8, warm_up=0.25, weight_decay=0.3)
    options = fit.call_args.kwargs
    assert options["weight_decay"] == 0.3
    factors = [options["schedule"](step) for step in range(1, 9)]
    assert factors == pytest.approx([1 / 2, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7])


def test_an_epoch_has_each_example_once():
    data = (torch.zeros(13, 1, 2), torch.full((13, 1), 2)), torch.arange(13)
    supply = gpt1_finetuning._shuffled(data, 5, new_generator())
    epochs = [[int(n) for _ in range(3) for n in next(supply)[1]] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [[*range(13)]] * 2
    assert epochs[0] != epochs[1]


# use


def test_accuracy_counts_the_likeliest_labels():
    task, tuned = toy_task(), tune()
    probs = predict(tuned, [e.texts for e in task.test])
    assert torch.allclose(probs.sum(-1), torch.ones(len(probs)))
    right = sum(int(p.argmax()) == e.label for p, e in zip(probs, task.test, strict=True))
    assert accuracy(tuned, task.test) == right / len(task.test)


@models
def test_a_kept_model_gives_the_same_probabilities(name, tmp_path):
    backbone = MODELS[name]()
    tuned = tune(backbone, auxiliary=0.5 * backbone.causal)
    texts = [e.texts for e in toy_task().test]
    loaded = tuned_models.load(tuned_models.save(tuned, tmp_path / "kept"))
    assert torch.equal(predict(loaded, texts), predict(tuned, texts))
    assert loaded.forms.labels == ("blame", "praise")
    assert not loaded.model.training
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {"model.safetensors", "task.json", "tokenizer.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "task.json").unlink(), "found no task.json"),
        (lambda f: (f / "task.json").write_text("{"), "expected JSON"),
        (lambda f: (f / "task.json").write_text("[]"), "next-token task 1"),
        (lambda f: edit(f, "backbone", {"kind": "mlp"}), "expected a task in"),
        (lambda f: edit(f, "labels", ["a", "b", "c"]), "size mismatch for head.weight"),
        (lambda f: edit(f, "family", "regression"), "expected a family among"),
        (lambda f: save_tokenizer(WordTokenizer(["a"]), f / "tokenizer.json"), "of 16 tokens"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "whole safetensors file"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, change, message):
    folder = tuned_models.save(tune(), tmp_path)
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tuned_models.load(folder)


def edit(folder, name, value):
    content = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(content | {name: value}))


# what is refused


@pytest.mark.parametrize(
    ("family", "texts", "error", "message"),
    [
        ("regression", [["a"]], ValueError, "a family among"),
        ("classification", [("cat", "dog")], ValueError, "1 texts for classification, got 2"),
        ("similarity", [("cat",)], ValueError, "2 texts for similarity, got 1 in example 0"),
        ("choice", [("cat", "dog", "fox")], ValueError, "4 texts for choice, got 3"),
        ("classification", ["cat"], TypeError, "a tuple of texts as example 0, got 'cat'"),
        ("classification", [("cat",), (7,)], TypeError, "as example 1"),
        ("entailment", [("cat", "dog"), ("cat", " ")], ValueError, "one token in each text.*as 1"),
        ("classification", [], ValueError, "at least one example, got none"),
    ],
)
def test_texts_that_do_not_fit_the_family_are_refused(family, texts, error, message):
    with pytest.raises(error, match=message):
        InputForms(family, ("no", "maybe", "yes"), TOKENIZER).tensors(texts)


LARGER, WIDER = WordTokenizer([*WORDS, "bird"]), gpt(channels=12)
new_tokens_for = partial(with_new_tokens, generator=new_generator())


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: finetune(gpt(), LARGER, toy_task()), ValueError, "of 16 tokens, got one of 17"),
        (
            lambda: tune(task=replace(toy_task(), validation=())),
            ValueError,
            "one example, got none",
        ),
        (lambda: new_tokens_for(torch.nn.Linear(2, 3)), TypeError, "a GPT, an RNN, .*got Linear"),
        (lambda: transferred(gpt(), gpt(), layers=-1), ValueError, "from 0 to 3 layers.*got -1"),
        (lambda: transferred(gpt(), gpt(), layers=4), ValueError, "from 0 to 3 layers.*got 4"),
        (lambda: tune(frozen=4), ValueError, "from 0 to 3 layers.*got 4"),
        (lambda: transferred(gpt(), WIDER, layers=1), ValueError, r"same .*'channels': \(10, 12"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(work, error, message):
    with pytest.raises(error, match=message):
        work()


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_out_of_range_is_refused(label):
    examples = [Example(("cat",), 0), Example(("dog",), label)]
    with pytest.raises(ValueError, match=f"labels from 0 to 1, got .*{label}"):
        accuracy(tune(), examples)


def test_texts_longer_than_the_models_context_are_cut_on_request_only():
    short, task = gpt(context_length=7), toy_task()
    with pytest.raises(ValueError, match="a context of 7, less the new tokens"):
        tune(short, task)
    tuned = finetune(short, TOKENIZER, task, FinetuneConfig(steps=1), cut=True, progress=False)
    assert predict(tuned, [("cat " * 50,)]).shape == (1, 2)


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        (-1, ("steps", "frozen", "head_first", "batch_size", "every")),
        (-0.1, ("learning_rate", "auxiliary", "weight_decay", "dropout", "warm_up")),
        (0, ("steps", "every")),
        (math.nan, ("auxiliary",)),
        (1.0, ("warm_up",)),
    ],
)
def test_a_setting_out_of_range_is_refused(wrong, values):
    """By itself, by `fit`, or by torch."""
    for name in values:
        with pytest.raises((ValueError, RuntimeError), match=f"{wrong}|range"):
            tune(**{name: wrong})
