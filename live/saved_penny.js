/* Where the saved penny goes, in book/likelihood/smoothing.md: the coins of each context, what they give up, and who
   gets it on the steps below. The sums are in smoothing.js. */
"use strict";

nextToken.figures ??= {};

nextToken.tale = () => {
  const lines = Array(40).fill("she lives in san francisco");
  for (const owner of ["my", "your", "her", "his", "our"]) lines.push(`he broke ${owner} glasses`);
  return `. ${[...lines, "he is reading a book", "he is reading the news"].join(" . ")} .`.split(" ");
};

nextToken.figures.saved_penny = (place) => {
  const { make, drawn, told, choice, slideHandle, tale, countNgrams, backOff } = nextToken;
  const vocabulary = [...new Set(tale())].sort();
  const [ORDER, PARTS, WIDE] = [3, 20, 332]; // a coin is cut at a twentieth
  const levels = countNgrams(tale(), ORDER);
  const begin = () => ({ text: ["he", "is", "reading"], word: "francisco", estimator: "absolute", kept: PARTS / 2 });
  let now = begin();
  const set = (change) => {
    change();
    show();
  };

  /* Coins in rows of ten, each as full as it stays: a constant is taken from the last. */
  const pile = (parent, count, pitch = 8) => {
    const drawing = drawn("svg", parent, { class: "pile", "aria-hidden": true });
    Object.assign(drawing.style, { width: `${Math.min(count, 10) * pitch}px`, height: `${Math.ceil(count / 10) * pitch}px` });
    const [side, paths] = [pitch - 2, { coin: "", piece: "" }]; // two shapes, not two for each coin
    for (let n = 0; n < count; n += 1) {
      const corner = `M${(n % 10) * pitch + 0.5} ${Math.floor(n / 10) * pitch + 0.5}v${side}`;
      const full = n + 1 < count && now.estimator !== "interpolated";
      paths.coin += `${corner}h${full ? side : (side * now.kept) / PARTS}v${-side}z`;
      if (!full) paths.piece += `${corner}h${side}v${-side}z`;
    }
    for (const [kind, d] of Object.entries(paths)) drawn("path", drawing, { d, class: kind });
  };

  make("p", place, { textContent: "Counted: 40 × she lives in san francisco, he broke my (your, her, his, our) glasses, he is reading a book, he is reading the news. Here the context is two words, not one as in the figure above." });
  const written = make("p", place, { className: "written" });
  const methods = make("div", place, { className: "controls" });
  const names = [["interpolation", "interpolated"], ["absolute", "absolute"], ["Kneser–Ney", "kneser-ney"]];
  const method = choice(methods, "method", names, () => now.estimator, (name) => set(() => (now.estimator = name)));
  const title = make("p", place);
  const pair = make("div", place, { className: "controls words pair" });
  const gives = make("p", place);
  const cut = drawn("svg", place, { viewBox: "0 0 340 44" });
  drawn("rect", cut, { x: 12, y: 8, width: WIDE - 16, height: 28, rx: 4, class: "piece" });
  const whole = drawn("rect", cut, { x: 12, y: 8, height: 28, rx: 4, class: "coin" });
  const shape = { left: 12, right: WIDE - 4, y: 22, most: PARTS, colour: "#e69f00", track: cut };
  const handle = slideHandle(cut, "how much a coin keeps, in twentieths", shape, () => now.kept, (kept) => set(() => (now.kept = kept)));
  const stairs = make("div", place);
  const legend = make("div", place, { className: "stair" });
  const output = make("output", place);
  const keys = make("div", place, { className: "controls" });
  const key = (textContent, act) =>
    make("button", keys, { type: "button", textContent }).addEventListener("click", () => set(act));
  key("Write the word", () => {
    now.text.push(now.word);
    const { probs } = said();
    now.word = vocabulary[probs.indexOf(Math.max(...probs))];
  });
  key("Take a word back", () => now.text.length > 1 && now.text.pop());
  key("As it was", () => (now = begin()));
  make("p", place, { textContent: "The other words:" });
  const words = make("div", place, { className: "controls words" });
  const buttons = vocabulary.map((word) => {
    const button = make("button", ["francisco", "glasses"].includes(word) ? pair : words, { type: "button", className: "word" });
    button.addEventListener("click", () => set(() => (now.word = word)));
    return button;
  });

  const said = () => {
    const parameter = (now.estimator === "interpolated" ? now.kept : PARTS - now.kept) / PARTS;
    return backOff(levels, vocabulary, now.estimator, parameter, now.text);
  };

  const label = (bar, x, textContent, kind = "") =>
    Object.assign(drawn("text", bar, { x, y: 17, "text-anchor": "middle", class: kind }), { textContent });
  /* One step: its coins, and a bar of what has come down to it; what it saves falls to the next. */
  const stair = ({ known, counts, mass, left }, share, seen, name) => {
    const head = make("div", stairs, { className: "stair" });
    make("span", head, { textContent: name });
    const pitch = Math.max(...(counts?.values() ?? [])) > 10 ? 8 : 14;
    if (known) for (const [word, count] of counts) pile(make("span", head, { textContent: `${word} ${count} ` }), count, pitch);
    const bar = drawn("svg", stairs, { viewBox: "0 0 340 24", role: "img" });
    let x = 4 + WIDE * (1 - share);
    const order = [...mass].sort(([a], [b]) => seen.has(b) - seen.has(a) || (a < b ? -1 : 1));
    for (const [word, own] of order) {
      const width = WIDE * share * own;
      const kind = word === now.word ? "picked" : seen.has(word) ? "coin" : "other";
      drawn("rect", bar, { x, y: 1, width, height: 22, class: kind });
      if (word.length * 8 < width) label(bar, x + width / 2, word, kind === "coin" ? "on" : "dark");
      x += width;
    }
    const saved = WIDE * share * left;
    if (saved > 1) drawn("rect", bar, { x, y: 1, width: saved, height: 22, class: "piece" });
    if (saved > 80) label(bar, x + saved / 2, `${told(share * left)} saved`);
    bar.setAttribute("aria-label", `${told(share)} comes here, ${told(share * left)} is saved`);
    return share * left;
  };

  const show = () => {
    const { steps, probs } = said();
    const [recent, p] = [now.text.slice(1 - ORDER), probs[vocabulary.indexOf(now.word)]];
    method();
    handle();
    whole.setAttribute("width", ((WIDE - 16) * now.kept) / PARTS);
    gives.replaceChildren("Every ", Object.assign(document.createElement("b"), { textContent: now.estimator === "interpolated" ? "coin" : "word" }), ` gives up ${told(1 - now.kept / PARTS)} of a coin, and keeps the rest. Move the cut:`);
    cut.lastChild.ariaValueText = gives.textContent;
    written.textContent = `${now.text.slice(-8).join(" ")} … “${now.word}”?`;
    const top = steps.find(({ total }) => total);
    const continued = now.estimator === "kneser-ney";
    stairs.replaceChildren();
    let share = 1;
    steps.forEach((step, n) => {
      if (step.known === null) return;
      const name = `${step.known ? `after “${step.known}”` : "any word"}${continued && n ? ", by different words before it" : ""}${step.total ? "" : ": never seen"}`;
      share = stair(step, share, top.counts, name);
    });
    const alike = new Map(vocabulary.map((word) => [word, 1 / vocabulary.length]));
    stair({ mass: alike, left: 0 }, share, top.counts, "all words alike");
    const arrives = vocabulary.reduce((sum, word, w) => sum + (top.counts.has(word) ? 0 : probs[w]), 0);
    const back = `${told(told(top.left) - told(arrives))} comes back to “${[...top.counts.keys()].join("”, “")}”`;
    output.textContent = `“${now.word}” after “${recent.join(" ")}”: ${told(p, 4)}, ${p ? told(-Math.log(p)) : "∞"} nats. After “${top.known}”, ${told(top.left)} is saved: ${told(arrives)} reaches other words, ${back}.`;
    const colours = { coin: `seen after “${top.known}”`, other: "other words", picked: `“${now.word}”` };
    legend.replaceChildren();
    for (const [kind, textContent] of Object.entries(colours)) make("span", legend, { className: `legend ${kind}`, textContent });
    title.textContent = `A coin for each ${continued ? "different word before a word" : "time that a word occurred"}; below, its probability after “${recent.join(" ")}”:`;
    buttons.forEach((button, w) => {
      const count = steps.at(-1).counts.get(vocabulary[w]) ?? 0;
      button.textContent = `${vocabulary[w]} ${count}`;
      button.ariaPressed = String(vocabulary[w] === now.word);
      pile(button, count);
      button.append(told(probs[w], 4));
    });
  };
  show();
};
