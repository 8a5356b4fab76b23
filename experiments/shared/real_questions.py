"""Questions to a real model, made by hand for this book: a prompt, its answer, and the choices.

    agreement           the cat near the doors -> is, are      plain, and with a noun in between
    sums                7 + 5 = -> 12
    plurals             the plural of goose -> geese
    sentiment           a review -> positive, negative
    category            a word -> animal, tool, food, clothing
    extraction          where somebody lives, with the paragraph that says it, and without
    yes or no           whether a sentence about a paragraph is true

An item without choices is answered freely: it is right if every token of the answer is the
likeliest, and then something that does not go on with the word. Names and places of the paragraphs
are put together by chance, so that nobody can have learnt the answers by heart.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    prompt: str
    answer: str
    choices: tuple = ()  # none: free


ANIMALS = [
    "cat",
    "dog",
    "horse",
    "teacher",
    "farmer",
    "doctor",
    "boy",
    "girl",
    "sailor",
    "painter",
    "king",
    "queen",
    "lawyer",
    "actor",
    "singer",
    "nurse",
    "rabbit",
    "tiger",
    "pilot",
    "neighbour",
]
THINGS = ["door", "table", "garden", "window", "bridge", "box", "river", "book", "tree", "car"]
IRREGULAR = dict(
    each.split(":")
    for each in [
        "goose:geese",
        "mouse:mice",
        "foot:feet",
        "tooth:teeth",
        "child:children",
        "man:men",
        "woman:women",
        "leaf:leaves",
        "knife:knives",
        "wolf:wolves",
        "half:halves",
        "shelf:shelves",
        "city:cities",
        "baby:babies",
        "lady:ladies",
        "country:countries",
        "box:boxes",
        "bus:buses",
        "dish:dishes",
        "church:churches",
        "potato:potatoes",
        "hero:heroes",
        "tomato:tomatoes",
        "thief:thieves",
        "wife:wives",
        "life:lives",
        "loaf:loaves",
        "story:stories",
        "fly:flies",
        "party:parties",
        "glass:glasses",
        "watch:watches",
        "brush:brushes",
        "fox:foxes",
    ]
)
WORDS = {
    "animal": "horse tiger rabbit eagle whale spider monkey sheep frog duck bear goat lion snake",
    "tool": "hammer saw wrench drill pliers shovel rake chisel crowbar axe ladder file clamp hoe",
    "food": "bread cheese soup rice apple carrot butter pasta honey bacon onion cake potato salad",
    "clothing": "shirt coat hat glove sock dress scarf jacket shoe skirt sweater belt boot cap",
}
POSITIVE = [
    "The room was clean and the breakfast was wonderful.",
    "I laughed from the first page to the last.",
    "Our guide knew everything and made the day a joy.",
    "The soup was hot, rich and full of flavour.",
    "This lamp is beautiful and was easy to set up.",
    "The actors were brilliant and the music moved me.",
    "My order came a day early and in perfect condition.",
    "The staff smiled and helped us with everything.",
    "I have never slept in a softer bed.",
    "A charming little shop with fair prices.",
    "The bread alone is worth the trip.",
    "It works perfectly, and I would buy it again.",
    "The children loved every minute of the show.",
    "A thrilling story with an ending I did not expect.",
    "The battery lasts for days, which is great.",
    "We had the best seats and a lovely evening.",
    "The coffee is excellent and the cakes are fresh.",
    "This jacket is warm, light and fits me well.",
    "Her voice was clear and the songs were lovely.",
    "The garden was a delight in the evening sun.",
    "I recommend this dentist to all my friends.",
    "The bike rides smoothly and looks great.",
    "A clever film that I want to see again.",
    "The teacher was patient and I learnt a lot.",
    "Everything about this hotel was a pleasure.",
    "The painting looks even better on my wall.",
    "The fish was fresh and cooked to perfection.",
    "Fast, friendly service and a fair price.",
]
NEGATIVE = [
    "The room was dirty and smelled of smoke.",
    "I fell asleep before the end of the first chapter.",
    "Our guide was late and knew nothing.",
    "The soup was cold and tasted of nothing.",
    "This lamp broke on the second day.",
    "The actors were dull and the music was awful.",
    "My order came a week late and was damaged.",
    "The staff ignored us and then were rude.",
    "I have never slept in a worse bed.",
    "An ugly little shop with absurd prices.",
    "The bread was stale and hard as a stone.",
    "It never worked, and they refused to pay me back.",
    "The children were bored and wanted to go home.",
    "A weak story with an ending that makes no sense.",
    "The battery is empty after an hour, which is useless.",
    "We saw nothing from our seats and left early.",
    "The coffee is bitter and the cakes are dry.",
    "This jacket is thin, heavy and does not fit.",
    "Her voice was flat and the songs were boring.",
    "The garden was a mess of mud and rubbish.",
    "I would warn all my friends about this dentist.",
    "The bike squeaks and the brakes failed.",
    "A stupid film that wasted two hours of my life.",
    "The teacher was impatient and I learnt nothing.",
    "Everything about this hotel was a disappointment.",
    "The painting arrived with a tear and faded colours.",
    "The fish was old and burnt on one side.",
    "Slow, unfriendly service and a terrible price.",
]
NAMES = [
    "Mara",
    "Tomas",
    "Ilse",
    "Bruno",
    "Nadia",
    "Oskar",
    "Greta",
    "Pavel",
    "Ruth",
    "Anton",
    "Celia",
    "Hugo",
    "Lena",
    "Marek",
]
PLACES = [
    "Oslo",
    "Lisbon",
    "Cairo",
    "Boston",
    "Prague",
    "Dublin",
    "Madrid",
    "Vienna",
    "Athens",
    "Naples",
]
GOODS = ["lamps", "boots", "clocks", "maps", "ropes", "candles", "baskets", "kites"]


def agreement(rng, attractor):
    """Half of the subjects are plural; a noun in between has the other number."""
    pairs = [(noun, thing) for noun in ANIMALS for thing in (THINGS if attractor else [""])]
    both = [(noun, thing, many) for noun, thing in pairs for many in (False, True)]
    found = []
    for noun, thing, many in rng.sample(both, 40):
        near = f" near the {thing}{'' if many else 'es' if thing == 'box' else 's'}"
        subject = f"The {noun}{'s' if many else ''}{near if attractor else ''}"
        found.append(Item(subject, " are" if many else " is", (" is", " are")))
    return found


def sums(rng):
    pairs = rng.sample([(a, b) for a in range(1, 10) for b in range(1, 10)], 56)
    return [Item(f"{a} + {b} =", f" {a + b}") for a, b in pairs]


def plurals(rng):
    pairs = rng.sample(sorted(IRREGULAR.items()), len(IRREGULAR))
    return [Item(f"Singular: {one}\nPlural:", f" {many}") for one, many in pairs]


def sentiment(rng):
    both = [(text, " positive") for text in POSITIVE] + [(text, " negative") for text in NEGATIVE]
    rng.shuffle(both)
    choices = (" positive", " negative")
    return [Item(f"Review: {text}\nSentiment:", answer, choices) for text, answer in both]


def category(rng):
    pairs = [(word, f" {kind}") for kind, words in WORDS.items() for word in words.split()]
    rng.shuffle(pairs)
    choices = tuple(f" {kind}" for kind in WORDS)
    return [Item(f"Word: {word}\nKind:", kind, choices) for word, kind in pairs]


def paragraph(rng):
    names, places, goods = rng.sample(NAMES, 3), rng.sample(PLACES, 3), rng.sample(GOODS, 3)
    told = " ".join(
        f"{name} lives in {place} and sells {good}."
        for name, place, good in zip(names, places, goods, strict=True)
    )
    return told, names, places


def extraction(rng, told=True):
    found = []
    for _ in range(44):
        text, names, places = paragraph(rng)
        i = rng.randrange(3)
        before = f"{text}\n" if told else ""
        found.append(
            Item(f"{before}Question: Where does {names[i]} live?\nAnswer:", f" {places[i]}")
        )
    return found


def yes_or_no(rng):
    found = []
    for k in range(56):
        text, names, places = paragraph(rng)
        i, right = rng.randrange(3), k % 2
        place = places[i] if right else places[(i + rng.randrange(1, 3)) % 3]
        asked = f"{text}\nQuestion: Does {names[i]} live in {place}?\nAnswer:"
        found.append(Item(asked, " Yes" if right else " No", (" Yes", " No")))
    rng.shuffle(found)
    return found


TASKS = {  # name: how its items are made, with how many examples it is asked, the floor
    "agreement": (lambda rng: agreement(rng, False), (0,), 1 / 2),
    "agreement, a noun between": (lambda rng: agreement(rng, True), (0,), 1 / 2),
    "sums": (sums, (0, 4), 1 / 9),  # the commonest answer, 10
    "plurals": (plurals, (0, 4), 0.0),
    "sentiment": (sentiment, (0, 4, 16), 1 / 2),
    "category": (category, (0, 4, 16), 1 / 4),
    "extraction": (extraction, (0, 4), 1 / 3),  # one of the three places
    "extraction, no paragraph": (lambda rng: extraction(rng, False), (4,), 1 / 10),
    "yes or no": (yes_or_no, (0, 4), 1 / 2),
}


def asked(name, shots, count=40):
    """Items of a task, each with the same examples before it; no example is an item.

    Where there are choices, the examples' answers take turns: examples of one answer only, or with
    one answer last many times, are repeated and not understood.
    """
    make, of, _ = TASKS[name]
    items, examples = make(random.Random(name)), []
    for k in range(max(of)):
        choices = items[0].choices
        fits = [each for each in items if not choices or each.answer == choices[k % len(choices)]]
        examples.append(fits[-1])
        items.remove(fits[-1])
    before = "".join(f"{each.prompt}{each.answer}\n\n" for each in examples[:shots])
    return [Item(before + each.prompt, each.answer, each.choices) for each in items[:count]]
