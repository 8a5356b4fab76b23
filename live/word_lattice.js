/* All ways to cut a word, as arcs over its letters, in book/tokens/unigram.md: take a token away, or make it likelier. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.word_lattice = (place) => {
  const { make, drawn, told, choice, lattice, forward, posteriors, bestPath, unigramTokenizer, unigramPieces } = nextToken;
  const [byHand, learnt] = [unigramPieces.byHand, unigramPieces.learnt].map(unigramTokenizer);
  const [PITCH, LEFT, MOST] = [44, 3, 20];
  const longest = Math.max(8, Math.min(12, Math.floor(place.clientWidth / PITCH))); // bytes that a finger can tell apart
  const encode = (text) => String.fromCharCode(...new TextEncoder().encode(text));
  const spelt = (token) =>
    now.tokenizer.pieces[token].replace(/[^ -~]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16)}`).replaceAll(" ", "␣");
  let now; // steps: by how many fourth roots of two each token is likelier; gone: what has left the vocabulary
  let shows; // what is to be shown again after a change

  /* A token that grows takes from all others; one that goes takes its probability with it. */
  const found = () => {
    const { logProbs } = now.tokenizer;
    let more = 0;
    for (const [token, step] of now.steps) more += Math.exp(logProbs[token]) * (2 ** (step / 4) - 1);
    const stepped = logProbs.map((value, token) => value + ((now.steps.get(token) ?? 0) / 4) * Math.LN2 - Math.log1p(more));
    const probs = stepped.map((value, token) => (now.gone.has(token) ? -Infinity : value));
    const [best, score] = bestPath(now.edges, probs);
    const [ways, total] = [probs.map((value) => (value > -Infinity ? 0 : value)), probs].map((each) => forward(now.edges, each).at(-1));
    let at = 0;
    const onBest = new Set(best.map((token) => `${at} ${(at += now.tokenizer.pieces[token].length)}`));
    return { probs, best, onBest, score, ways: Math.round(Math.exp(ways)), total, shares: posteriors(now.edges, probs) };
  };
  const begin = (text, tokenizer) => {
    now = { text, tokenizer, edges: lattice(encode(text), tokenizer.ids), steps: new Map(), gone: new Set() };
    now.start = found();
    source.textContent = "";
    drawArcs();
    show();
  };

  make("p", place, {
    textContent: "The number in a box: how much of the word’s probability uses this token. Tap a token to take it away (the others stay as they are), or to bring it back. Pull it up or down, or press the arrow keys, to make it more or less likely; then all others share the rest.",
  });
  const above = make("div", place, { className: "controls" });
  const ready = [["nowhere", byHand], [" returns", learnt], [" nothing", learnt]];
  const pick = (one) => begin(...one, (typed.value = ""));
  const words = (list, some) =>
    choice(above, list, some.map((one) => [one[0].trim(), one]), () => some.find(([text]) => text === now.text && !typed.value), pick);
  const picks = [words("a toy list of fourteen", ready.slice(0, 1)), words("the 1,023 learnt here", ready.slice(1))];
  const typed = make("input", make("label", above, { textContent: `or your word, up to ${longest - 1} letters ` }), { size: 8, autocapitalize: "none" });
  typed.addEventListener("input", () => {
    // a word as PATTERN has it in src, and as much of it as fits
    const wanted = ` ${typed.value.trim()}`;
    let [text] = wanted.match(/^ (?:[\p{L}\p{Nl}\p{No}]+|\p{Nd}+|[^\s\p{L}\p{N}]+)/u) ?? [""];
    while (encode(text).length > longest) text = [...text].slice(0, -1).join("");
    if (!text) return pick(ready[0]);
    begin(text, learnt);
    source.textContent = text === wanted ? "" : `Only “${text.trim()}” is shown: one word, as much of it as fits.`;
  });
  const source = make("p", place);
  const drawing = drawn("svg", place, { role: "group", "aria-label": "Tokens over the letters of the word" });
  const output = make("output", place);
  const foot = make("div", place, { className: "controls" });
  make("button", foot, { type: "button", textContent: "As it was" }).addEventListener("click", () => pick(ready[0]));

  const drawArcs = () => {
    const lengths = [...new Set(now.start.shares.map(([start, end]) => end - start))].sort((a, b) => a - b);
    const [places, base] = [now.edges.length, PITCH * (lengths.length - 1) + 14];
    const [x, width] = [(at) => LEFT + PITCH * at, PITCH * (places - 1) + 2 * LEFT];
    drawing.replaceChildren();
    drawing.setAttribute("viewBox", `0 0 ${width} ${base + 54}`);
    drawing.style.maxWidth = `${1.3 * width}px`;
    const arcs = drawn("g", drawing);
    for (let at = 0; at < places; at += 1) drawn("circle", drawing, { cx: x(at), cy: base, r: 3, class: "dot" });
    shows = now.start.shares.map(([start, end, token], number) => {
      const up = PITCH * lengths.indexOf(end - start); // a letter lies flat
      const level = up ? base + 10 - up : base + 28;
      const top = up ? base - (4 / 3) * (base - level) : base;
      const arc = drawn("path", arcs, { d: `M ${x(start)} ${base} C ${x(start)} ${top} ${x(end)} ${top} ${x(end)} ${base}` });
      const handle = drawn("g", drawing, { role: "slider", tabindex: 0, transform: `translate(${x((start + end) / 2)} ${level})` });
      const half = Math.max(20, 4.2 * spelt(token).length + 6);
      drawn("rect", handle, { x: -22, y: -22, width: 44, height: 44, fill: "transparent" }); // what a finger hits
      drawn("rect", handle, { x: -half, y: -17, width: 2 * half, height: 34, rx: 4, class: "chip" });
      drawn("text", handle, { y: -2, "text-anchor": "middle", class: up ? "" : "letter" }).textContent = spelt(token);
      const part = drawn("text", handle, { y: 12, "text-anchor": "middle", class: "small" });
      Object.assign(handle, { ariaLabel: `${spelt(token)}, places ${start} to ${end}`, ariaValueMin: -MOST, ariaValueMax: MOST });
      hold(handle, token);
      return ({ shares, probs, onBest }) => {
        const [share, gone] = [shares[number][3], now.gone.has(token)];
        const how = `${gone ? " gone" : ""}${onBest.has(`${start} ${end}`) ? " best" : ""}`;
        arc.setAttribute("class", `arc${how}`);
        handle.setAttribute("class", `handle${how}`);
        arc.style.strokeWidth = 1 + 9 * share;
        part.textContent = gone ? "gone" : share < 0.005 ? "" : told(share);
        handle.ariaValueNow = now.steps.get(token) ?? 0;
        handle.ariaValueText = gone ? "gone" : `probability ${Math.exp(probs[token]).toPrecision(2)}, share ${told(share)}`;
      };
    });
  };

  /* Tapped, a token goes or comes back; pulled, or by the arrows, it becomes more or less likely. */
  const hold = (handle, token) => {
    const change = (step) => {
      const comes = now.gone.delete(token);
      if (step !== undefined) now.steps.set(token, Math.max(-MOST, Math.min(MOST, step)));
      else if (!comes) now.gone.add(token);
      now.held = token;
      show();
    };
    const step = () => now.steps.get(token) ?? 0;
    let from; // where the finger came down: its height, the step, whether it has pulled
    nextToken.hold(handle, ({ clientY }) => (from = [clientY, step(), false]), ({ clientY }) => {
      const to = from[1] + Math.trunc((from[0] - clientY) / 8);
      from[2] ||= to !== from[1];
      if (from[2] && to !== step()) change(to);
    });
    handle.addEventListener("pointerup", () => from[2] || change());
    handle.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5, Home: -2 * MOST, End: 2 * MOST, Enter: 0, " ": 0 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      change(by ? step() + by : undefined);
    });
  };

  const finding = ({ probs, best, onBest, score, ways, total, shares }) => {
    const { start, held, gone, steps } = now;
    if (!best.length) return "No cut is left, so the word is impossible. This is why single bytes stay.";
    const [cut, first] = [best, start.best].map((path) => path.map(spelt).join("·"));
    const leads = cut === first ? `${cut} is the best cut` : `The best cut jumps from ${first} to ${cut}`;
    const all = ways === 1 ? "It is the only one." : `All ${ways} cuts together: ${told(-total)} nats; the best holds ${told(100 * Math.exp(score - total), 0)}\u00a0% of that probability.`;
    const said = [`${leads}: ${told(-score)} nats. ${all}`];
    const [from, to, likeliest, share] = shares.reduce((a, b) => (b[3] > a[3] ? b : a));
    if (!onBest.has(`${from} ${to}`)) said.push(`Yet the likeliest token is ${spelt(likeliest)}, ${told(share)}.`);
    if (held === undefined) return said.join(" ");
    const p = [start.probs, probs].map((each) => Math.exp(each[held]).toPrecision(2)).join(" → ");
    if (!gone.has(held)) said.push(`Probability of ${spelt(held)}: ${p}.`);
    const uses = start.shares.filter(([, , token]) => token === held);
    const alone = gone.has(held) && gone.size === 1 && uses.length === 1 && ![...steps.values()].some(Boolean);
    const more = start.total - total;
    if (alone) said.push(`Without ${spelt(held)} the word costs ${told(more)} nats more: −log(1 − ${told(uses[0][3])}).`);
    else said.push(`The word costs ${told(Math.abs(more))} nats ${more < 0 ? "less" : "more"} than at first.`);
    return said.join(" ");
  };
  const show = () => {
    const state = found();
    for (const each of [...picks, ...shows]) each(state);
    output.textContent = finding(state);
  };
  pick(ready[0]);
};
