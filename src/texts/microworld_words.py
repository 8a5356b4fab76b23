"""Of which words is the micro-world made? Chapter: `gpt/microworld`."""

END = "<end>"


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


PEOPLE = _list("ann bob cleo dan eve finn gus hana")
PLACES = _list("kitchen garden hall attic cellar office barn library")
OBJECTS = _list("apple hammer ball pear saw kite plum drill doll lemon spade drum")
KINDS = _list("fruit tool toy")  # the kind of object i is i mod 3
ASPECTS = {
    "film": _list("plot acting music"),
    "hotel": _list("room bed staff"),
    "meal": _list("soup bread fish"),
    "book": _list("style opening cover"),
}
PRAISE = _list(
    "great lovely superb charming splendid delightful excellent wonderful brilliant pleasant "
    "perfect fine"
)
BLAME = _list("awful dull terrible boring dreadful horrible poor clumsy tedious sloppy weak dismal")
ADVERBS = _list("very quite")
COUNTRIES = _list(
    "arvia belor cormia dravia elunia farona goria hestia ilmar jorvia kelmar lunaria morvia "
    "norland ostria pelonia quorra rovenia sulmar tarvia umelia velonia wexia zandia"
)
CAPITALS = _list(
    "adra brel cadiv dorn esk fenn galt hule irn jask kolm lorn mirk nols orsk pryn qast rusk "
    "selk torv ulm vask wend zell"
)
VALUES = {
    "language": _list("arvic beloric cormic dravic elunic faric goric hestic"),
    "dish": _list("stew dumplings curry porridge noodles pancakes pie salad"),
    "colour": _list("red blue green yellow white black purple orange"),
}
ATTRIBUTES = ("capital", *VALUES)
ACTS = _list("sees likes wants paints")
ZORB = dict(  # the invented tongue, word by word; its order is subject, object, verb
    zip(
        PEOPLE + OBJECTS + ACTS,
        _list(
            "anu bobu klu danu evu finu gusu hanu "
            "appa zeka bala pira rika kita pluma dira dola lima spaka druma "
            "vizo lefo muko tino"
        ),
        strict=True,
    )
)
FUNCTION_WORDS = _list(
    ". ? : the a and in is to from with of has was then they say where who what true false "
    "unclear nobody went walked gave handed got received took grabbed dropped left this it i "
    "found praise yes no zorb"
)
