/* The story of the landing page, to be told by hand: at each place a perfect reader's words and a GPT's, and what each
   word costs the two. The perfect reader is in microworld.js, the GPT in gpt.js. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.story = (place, load) => {
  const { make, told, choice, softmax, draw, GPT, world, nextWords, microWorld } = nextToken;
  const [SHOWN, LEAST, DOTS] = [4, 0.02, "…"]; // impossible words that the GPT believes in
  const GPTS = [["1.4", 4], ["7.9", 16], ["118", 64], ["434", 128]]; // thousands of weights, channels
  const program = microWorld(world);
  const start = "ann has the drill . eve is in the cellar . then ann gave the drill to eve . who has the drill ? eve .";
  const begin = () => ({ words: [...start.split(" "), world.END], at: 24 });
  const percent = (p) => `${told(100 * p, 0)}\u00a0%`;
  let now = begin();
  let rows; // of the perfect reader: after the first 0, 1, … words, {word: p}

  /* A GPT with what it has read: it starts with the end token, and returns its p of a word after the first t words. */
  const readerOf = ({ weights, config, tokenizer }) => {
    const model = new GPT(nextToken.readWeights(weights), config);
    const SPECIALS = config.vocab_size - tokenizer.pieces.length; // the end token is the last of them
    const ids = Object.fromEntries([world.END, ...tokenizer.pieces].map((word, place) => [word, SPECIALS - 1 + place]));
    const size = Object.values(model.weights).reduce((sum, { data }) => sum + data.length, 0).toLocaleString("en");
    const [read, seen] = [[], []];
    const expects = (words) => {
      const texts = [world.END, ...words].slice(0, config.n_positions);
      let same = 0;
      while (same < read.length && read[same] === texts[same]) same += 1;
      for (const past of [...model.cache, read, seen]) past.length = Math.min(past.length, same);
      for (const word of texts.slice(same)) {
        seen.push(softmax(model.read(ids[word])));
        read.push(word);
      }
      return (t, word) => seen[t][ids[word]];
    };
    return { size, expects, known: Object.keys(ids) };
  };
  const readers = { 4: readerOf(nextToken.model) }; // those that were chosen, the smallest first
  let channels = 4;
  const choose = async (wanted) => {
    output.textContent = "The GPT comes …";
    if (!readers[wanted]) await load(`gpt2/c${wanted}-seed-0`);
    readers[wanted] ??= readerOf(nextToken.model);
    channels = wanted;
    show();
  };

  const follow = () => (rows = nextWords(program, now.words));
  const isCertain = (t) => Object.keys(rows[t]).length === 1 && !["?", ":"].includes(now.words[t - 1]); // no answer
  const lastChoice = (t) => (t > 0 && isCertain(t) ? lastChoice(t - 1) : Math.max(0, t));
  /* Writes a word at the place, and then what must follow. */
  const write = (word) => {
    if (word !== now.words[now.at]) now.words = [...now.words.slice(0, now.at), word];
    now.at += 1;
    for (follow(); isCertain(now.at); now.at += 1) {
      if (now.at === now.words.length) now.words.push(Object.keys(rows[now.at])[0]);
      follow();
    }
    if (now.words[now.at - 1] === world.END) now.at = lastChoice(now.at - 1);
  };
  const chance = () => {
    const isTold = now.words.at(-1) === world.END && now.at === lastChoice(now.words.length - 1);
    now.words = isTold ? [] : now.words.slice(0, now.at); // what is at its end gives way to another
    for (follow(); now.words.at(-1) !== world.END; follow()) {
      const row = Object.entries(rows[now.words.length]);
      now.words.push(row[draw(row.map(([, p]) => p))][0]);
    }
    now.at = lastChoice(now.words.length - 1);
  };
  const asks = () => rows.findLastIndex((row, t) => t <= now.at && "who" in row); // where one may ask
  const ask = (word) => () => {
    if (asks() < 0) return;
    now.at = asks();
    write(word);
  };
  const takeBack = () => {
    now.at = lastChoice(now.at - 1);
    now.words = now.words.slice(0, now.at);
  };

  const set = (change, focus) => () => {
    change();
    show();
    focus?.()?.focus({ preventScroll: true });
  };
  const sizes = make("div", place, { className: "controls" });
  const showsSize = choice(sizes, "× 1,000 weights", GPTS, () => channels, choose);
  const text = make("p", place, { className: "words", role: "radiogroup", ariaLabel: "The story: choose a word" });
  const marked = () => text.querySelector("[aria-checked=true]");
  text.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -99, End: 99 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation(); // the projector has the arrows, too
    set(() => (now.at = Math.max(0, Math.min(text.children.length - 1, now.at + by))), marked)();
  });
  make("p", place, { textContent: "A word costs −log of its probability, in nats. A thick line: the GPT pays more than the perfect reader." });
  const sums = make("p", place, { className: "sums told" });
  const cells = make("div", place, { className: "cells", role: "group", ariaLabel: "What may come here" });
  const output = make("output", place);
  const keys = make("div", place, { className: "controls" });
  const key = (name, act) => {
    const button = make("button", keys, { type: "button", textContent: name });
    button.addEventListener("click", set(act, () => void text.scrollIntoView({ block: "nearest" })));
    return button;
  };
  const questions = [["Who has the", "who"], ["Where is the", "where"]].map(([says, word]) => [says, key("", ask(word))]);
  const back = key("Take back", takeBack);
  key("Go on by chance", chance);
  key("New text", () => (now = { words: [], at: 0 }));
  key("As it was", () => ((now = begin()), (channels = GPTS[0][1])));

  const show = () => {
    follow();
    showsSize();
    const { size, expects, known } = readers[channels];
    const expected = expects(now.words);
    const { words, at } = now;
    const nats = words.map((word, t) => [-Math.log(expected(t, word)), -Math.log(rows[t][word])]);
    const [came, ended] = [words[at], words.at(-1) === world.END];

    text.replaceChildren();
    [...words, ...(ended ? [] : [DOTS])].forEach((word, t) => {
      const button = make("button", text, { type: "button", textContent: word, className: t > at ? "later" : "" });
      button.setAttribute("role", "radio");
      Object.assign(button, { ariaChecked: t === at, tabIndex: t === at ? 0 : -1 });
      if (t < words.length) button.style.setProperty("--gap", Math.max(0, nats[t][0] - nats[t][1]));
      button.addEventListener("click", set(() => (now.at = t), marked));
    });

    cells.replaceChildren();
    const cell = (tag, word, perfect) => {
      const own = make(tag, cells, { className: "cell" });
      make(word === came ? "b" : "span", own, { textContent: word });
      const shares = [["perfect", perfect], ["gpt", expected(at, word)]];
      for (const [className, p] of shares) {
        const share = make("span", own, { className: "told", textContent: percent(p) });
        make("i", share, { className }).style.width = `${100 * p}%`;
      }
      own.ariaLabel = `${word}: perfect reader ${percent(perfect)}, GPT ${percent(expected(at, word))}`;
      return own;
    };
    const possible = Object.entries(rows[at]).sort(([, p], [, q]) => q - p);
    for (const [word, p] of possible) {
      Object.assign(cell("button", word, p), { type: "button" }).addEventListener(
        "click",
        set(() => write(word), () => cells.querySelector("button")),
      );
    }
    const others = known.filter((word) => !(word in rows[at])).map((word) => [word, expected(at, word)]);
    const astray = others.reduce((sum, [, p]) => sum + p, 0);
    others.sort(([, p], [, q]) => q - p);
    for (const [word, p] of others.slice(0, SHOWN)) if (p >= LEAST) cell("span", word, 0).classList.add("never");

    for (const [says, button] of questions) {
      Object.assign(button, { ariaDisabled: String(asks() < 0), textContent: `${says} ${asks() < 0 ? "…" : words[3]} ?` });
    }
    back.ariaDisabled = String(at === 0);
    const upTo = nats.slice(0, at + 1);
    const [gpt, perfect] = [0, 1].map((own) => upTo.reduce((sum, each) => sum + each[own], 0));
    sums.replaceChildren();
    for (const [name, sum, className] of [["perfect reader", perfect, "perfect"], [`GPT of ${size} weights`, gpt, "gpt"]]) {
      const legend = make("span", sums);
      make("i", legend, { className });
      legend.append(`${name}: ${told(sum, 1)} nats so far`);
    }
    const says = [`The GPT gives ${percent(astray)} to words that cannot come here by the rules of this little world (struck out).`];
    const asked = possible.length === 1 && words[at - 1] === "?";
    if (came || asked) {
      const word = came ?? possible[0][0];
      const tried = (asked ? Object.values(readers) : [readers[channels]]).map((each) => [each.expects(words)(at, word), each.size]);
      const given = tried.map(([p, weights], n) => `${percent(p)} (${weights}${n ? "" : " weights"})`).join(", ");
      if (asked && tried.every(([p]) => p < 0.5)) says.unshift(`${tried.length > 1 ? "None of these knows" : "This GPT does not know"}: it guesses.`);
      says.unshift(`“${word}” ${came ? "came" : "is the answer"}, with ${percent(rows[at][word])} from the perfect reader, who forgets nothing, and from ${tried.length > 1 ? "the GPTs so far" : "the GPT"} ${given}.`);
    } else if (!at) says.unshift("A story begins with a name, a review with “this”, a list of facts with “the” or “in”; “say” and “zorb” begin a lesson in Zorb, a made-up language.");
    output.textContent = says.join(" ");
  };
  show();
};
