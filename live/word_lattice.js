/* All ways to cut a word, as arcs over its letters, in book/tokens/unigram.md: take a token away, or make it likelier. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.word_lattice = (place) => {
  const { make, drawn, told, choice, lattice, forward, posteriors, bestPath, unigramTokens, unigramPieces } = nextToken;
  const [byHand, learnt] = [unigramPieces.byHand, unigramPieces.learnt].map(unigramTokens);
  const [PITCH, LEFT, MOST] = [44, 3, 20]; // a token is made 2^(1/4) times as likely, MOST times at most
  const longest = Math.max(8, Math.min(12, Math.floor(place.clientWidth / PITCH))); // bytes that a finger can tell apart
  const encode = (text) => String.fromCharCode(...new TextEncoder().encode(text));
  const spelt = (bytes) =>
    bytes.replace(/[^ -~]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16)}`).replaceAll(" ", "␣");
  let now;
  let shows; // what is to be shown again after a change
  const total = (logProbs) => forward(now.edges, logProbs).at(-1);
  const uses = (token) => now.start.shares.filter((edge) => edge[2] === token);

  /* A word begins with the probabilities of its tokenizer. */
  const begin = (text, tokens) => {
    const word = encode(text);
    const edges = lattice(word, tokens.ids);
    now = { text, tokens, word, edges, steps: new Map(), gone: new Set() };
    now.start = found();
    arcs();
  };
  /* A token that grows takes from all others; one that goes takes its probability with it. */
  const logProbs = () => {
    const { tokens, steps, gone } = now;
    let more = 0;
    for (const [token, step] of steps) more += Math.exp(tokens.logProbs[token]) * (2 ** (step / 4) - 1);
    const grown = tokens.logProbs.map((value, token) => value + ((steps.get(token) ?? 0) / 4) * Math.LN2 - Math.log1p(more));
    return grown.map((value, token) => (gone.has(token) ? -Infinity : value));
  };
  const found = () => {
    const probs = logProbs();
    const [best, score] = bestPath(now.edges, probs);
    const ways = Math.round(Math.exp(total(probs.map((value) => (value > -Infinity ? 0 : value)))));
    return { probs, best, score, ways, total: total(probs), shares: posteriors(now.edges, probs) };
  };
  const set = (change) => {
    change();
    show();
  };

  make("p", place, {
    textContent: "Tap a token to take it away, or to bring it back. Pull it up or down (or use the arrow keys) to make it more or less likely.",
  });
  const above = make("div", place, { className: "controls" });
  const ready = ["nowhere", " returns", " nothing"].map((text, i) => [text.trim(), [text, i ? learnt : byHand]]);
  const pick = (value) => set(() => begin(...value, (typed.value = "")));
  const picks = choice(above, "word", ready, () => ready.find(([, value]) => value[0] === now.text)?.[1], pick);
  const typed = make("input", make("label", above, { textContent: "or yours " }), { size: 8, maxLength: longest - 1, autocomplete: "off" });
  Object.assign(typed, { autocapitalize: "none", spellcheck: false });
  typed.addEventListener("input", () => {
    // a word as PATTERN in src has it, as far as it fits
    let [text] = ` ${typed.value.trim()}`.match(/^ (?:[\p{L}\p{Nl}\p{No}]+|\p{Nd}+|[^\s\p{L}\p{N}]+)/u) ?? [""];
    while (encode(text).length > longest) text = [...text].slice(0, -1).join("");
    if (text.trim()) set(() => begin(text, learnt));
  });
  const told_tokens = make("p", place);
  const drawing = drawn("svg", place, { role: "group", "aria-label": "Tokens over the letters of the word" });
  const body = make("tbody", make("table", place));
  const rows = [0, 1].map(() => {
    const row = make("tr", body);
    const name = make("th", row, { scope: "row" });
    const bar = make("span", make("td", row, { className: "share" }), { className: "bar" });
    const nats = make("td", row, { className: "told" });
    return (text, value) => {
      name.textContent = text;
      nats.textContent = `${told(value)} nats`;
      bar.style.width = `${Math.min(100, (80 * value) / -now.start.score)}%`;
    };
  });
  const foot = make("div", place, { className: "controls" });
  const output = make("output", foot);
  const back = make("button", foot, { type: "button", textContent: "As it was" });
  back.addEventListener("click", () => pick(ready[0][1]));

  /* The arcs of a word, and on each a handle, the token. */
  const arcs = () => {
    const { edges, word, tokens } = now;
    const lengths = [...new Set(edges.flatMap((ending, end) => ending.map(([start]) => end - start)))].sort((a, b) => a - b);
    const [width, base] = [PITCH * word.length + 2 * LEFT, PITCH * (lengths.length - 1) + 14];
    const x = (at) => LEFT + PITCH * at;
    drawing.replaceChildren();
    drawing.setAttribute("viewBox", `0 0 ${width} ${base + 54}`);
    drawing.style.maxWidth = `${1.3 * width}px`;
    const lines = drawn("g", drawing);
    for (let at = 0; at <= word.length; at += 1) drawn("circle", drawing, { cx: x(at), cy: base, r: 3, class: "dot" });
    shows = now.start.shares.map(([start, end, token], number) => {
      const [letter, middle] = [end - start === 1, (x(start) + x(end)) / 2];
      const level = letter ? base + 28 : base - 34 - PITCH * (lengths.indexOf(end - start) - 1);
      const top = letter ? base : base - (4 / 3) * (base - level);
      const arc = drawn("path", lines, { d: `M ${x(start)} ${base} C ${x(start)} ${top} ${x(end)} ${top} ${x(end)} ${base}`, class: "arc" });
      const handle = drawn("g", drawing, { role: "slider", tabindex: 0, class: "handle", transform: `translate(${middle} ${level})` });
      const half = Math.max(20, 3.7 * spelt(tokens.names[token]).length + 4);
      drawn("rect", handle, { x: -22, y: -22, width: 44, height: 44, fill: "transparent" }); // what a finger hits
      drawn("rect", handle, { x: -half, y: -17, width: 2 * half, height: 34, rx: 4, class: "chip" });
      const name = drawn("text", handle, { y: -2, "text-anchor": "middle" });
      const part = drawn("text", handle, { y: 12, "text-anchor": "middle", class: "small" });
      name.textContent = spelt(tokens.names[token]);
      Object.assign(handle, { ariaLabel: `${name.textContent}, places ${start} to ${end}`, ariaValueMin: -MOST, ariaValueMax: MOST });
      hold(handle, token);
      return (state) => {
        const share = state.shares[number][3];
        const [gone, best] = [now.gone.has(token), onPath(state.best, start, end)];
        for (const each of [arc, handle]) each.classList.toggle("gone", gone);
        for (const each of [arc, handle]) each.classList.toggle("best", best);
        arc.style.strokeWidth = 1 + 9 * share;
        part.textContent = gone ? "gone" : share < 0.005 ? "" : told(share);
        const p = `probability ${Math.exp(state.probs[token]).toPrecision(2)}, share ${told(share)}`;
        handle.ariaValueNow = now.steps.get(token) ?? 0;
        handle.ariaValueText = gone ? "taken away" : p + (best ? ", on the best cut" : "");
      };
    });
  };
  const onPath = (path, start, end) => {
    let at = 0;
    return path?.some((token) => {
      const from = at;
      at += now.tokens.names[token].length;
      return from === start && at === end;
    });
  };
  /* Tapped, the token goes or comes; pulled, or moved by the arrows, it becomes more or less likely. */
  const hold = (handle, token) => {
    const toggle = () => set(() => now.gone.delete(token) || now.gone.add(token));
    const to = (step) => set(() => {
      now.gone.delete(token);
      now.steps.set(token, Math.max(-MOST, Math.min(MOST, step)));
    });
    const step = () => now.steps.get(token) ?? 0;
    let from; // where the finger came down: [y, step, whether it has moved]
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      handle.focus();
      from = [event.clientY, step(), false];
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const by = Math.trunc((from[0] - event.clientY) / 8);
      from[2] ||= by !== 0;
      if (from[2] && from[1] + by !== step()) to(from[1] + by);
    });
    handle.addEventListener("pointerup", () => from && !from[2] && toggle());
    handle.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, Enter: 0, " ": 0 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      if (by) to(step() + by);
      else toggle();
    });
  };

  const cut = (path) => path.map((token) => spelt(now.tokens.names[token])).join("·");
  const show = () => {
    const state = found();
    const { start } = now;
    picks();
    told_tokens.textContent = now.tokens === byHand ? "Tokens: the fourteen above." : "Tokens: the 1,023 that this chapter learns below.";
    for (const each of shows) each(state);
    rows[0]("best cut", -state.score);
    rows[1](state.ways === 1 ? "one cut" : `all ${state.ways} cuts`, -state.total);
    if (!state.best) {
      output.textContent = "No cut is left: the word is impossible. This is why single bytes stay.";
      return;
    }
    const jumps = cut(state.best) === cut(start.best) ? `${cut(state.best)} is the best` : `The best jumps from ${cut(start.best)} to ${cut(state.best)}, one`;
    const said = [`${jumps} of ${state.ways} cuts, with ${told(100 * Math.exp(state.score - state.total), 0)} % of the probability.`];
    const most = state.shares.reduce((a, b) => (b[3] > a[3] ? b : a));
    if (!onPath(state.best, most[0], most[1])) said.push(`Yet the likeliest token is ${spelt(now.tokens.names[most[2]])}, ${told(most[3])}.`);
    const more = start.total - state.total;
    const [only] = now.gone;
    const exact = now.gone.size === 1 && uses(only).length === 1 && ![...now.steps.values()].some(Boolean);
    const because = exact ? ` = −log(1 − ${told(uses(only)[0][3])})` : "";
    if (now.gone.size || now.steps.size) said.push(`The word costs ${told(Math.abs(more))} nats ${more < 0 ? "less" : "more"} than at first${because}.`);
    output.textContent = said.join(" ");
  };
  begin(...ready[0][1]);
  show();
};
