/* A small GPT writes on, in book/gpt/sampling.md: what may come next, and what is drawn. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.write_on = (place) => {
  const { make, told, choice, softmax, temperature, topK, nucleus, minP, draw, GPT } = nextToken;
  const file = nextToken.model;
  const model = new GPT(nextToken.readWeights(file.weights), file.config);
  const parts = nextToken.spelled(file.tokenizer);
  const decode = (ids) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(ids.flatMap((id) => parts[id])));
  const pictured = (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)); // a tab is ␉
  const [END, SHOWN, HALF] = [file.config.eos_token_id, 8, Math.ceil(file.config.n_positions / 2)];
  let [now, logits, left] = []; // left: how many tokens are still to be written
  const begin = () => {
    left = 0;
    now = { ids: [], temperature: 1, topK: file.config.vocab_size, nucleus: 1, minP: 0 };
    again([END]);
  };
  const again = (ids) => {
    model.forget();
    logits = model.unembed(ids.map((id) => model.state(id)).at(-1));
  };
  const filtered = () => minP(nucleus(topK(temperature(logits, now.temperature), now.topK), now.nucleus), now.minP);
  const write = (id) => {
    now.ids.push(id);
    // the table of positions ends: only the last tokens are read again
    if (model.cache[0].length === file.config.n_positions) again(now.ids.slice(-HALF));
    else logits = model.read(id);
  };
  const set = (change) => {
    change();
    show();
  };
  begin();

  const text = make("p", place, { className: "written" });
  const keys = make("div", place, { className: "controls" });
  const writeOn = (more) => () => {
    left = now.ids.at(-1) === END ? 0 : Math.max(0, left + more);
    if (left === 0) return;
    set(() => write(draw(softmax(filtered()))));
    setTimeout(writeOn(-1)); // so that the page shows each token, and answers between them
  };
  for (const [name, act] of [["Write a token", writeOn(1)], ["Write twenty", writeOn(20)], ["As it was", () => set(begin)]]) {
    make("button", keys, { type: "button", textContent: name }).addEventListener("click", act);
  }
  const knobs = make("div", place, { className: "controls" });
  const knob = (name, key, options) => choice(knobs, name, options, () => now[key], (value) => set(() => (now[key] = value)));
  const shows = [
    knob("temperature", "temperature", [0, 0.5, 1, 2].map((t) => [String(t), t])),
    knob("top-k", "topK", [["off", file.config.vocab_size], ["40", 40], ["5", 5]]),
    knob("nucleus", "nucleus", [["off", 1], ["0.9", 0.9], ["0.5", 0.5]]),
    knob("min-p", "minP", [["off", 0], ["0.02", 0.02], ["0.1", 0.1]]),
  ];
  const list = make("tbody", make("table", place));
  const output = make("output", place);

  const show = () => {
    for (const each of shows) each();
    text.textContent = now.ids.length ? decode(now.ids) : "…";
    list.replaceChildren();
    if (now.ids.at(-1) === END) {
      output.textContent = "The text has ended.";
      return;
    }
    const [model_says, drawn_from] = [softmax(logits), softmax(filtered())];
    const best = [...logits.keys()].sort((a, b) => logits[b] - logits[a]).slice(0, SHOWN);
    const others = [drawn_from, model_says].map((probs) => Math.max(0, best.reduce((left, id) => left - probs[id], 1)));
    const most = Math.max(...others, ...[drawn_from, model_says].flatMap((probs) => best.map((id) => probs[id])));
    const tell = (row, after, before) => {
      const share = make("td", row, { className: "share" });
      const track = make("span", share, { className: "track" });
      make("span", track, { className: "bar" }).style.width = `${(100 * after) / most}%`;
      make("span", track, { className: "before" }).style.width = `${(100 * before) / most}%`;
      make("span", share, { textContent: `${told(after, 3)} (model ${told(before, 3)})` });
    };
    for (const id of best) {
      const row = make("tr", list);
      const name = decode([id]).replaceAll(" ", "␣").replaceAll("\n", "⏎").replace(/[\0-\x1f]/g, pictured);
      const button = make("button", make("th", row, { scope: "row" }), { type: "button", className: "word", textContent: name });
      button.addEventListener("click", () => set(() => write(id)));
      tell(row, drawn_from[id], model_says[id]);
    }
    const row = make("tr", list);
    make("th", row, { scope: "row", textContent: `${(logits.length - SHOWN).toLocaleString("en")} others` });
    tell(row, ...others);
    const possible = drawn_from.filter((p) => p > 0).length;
    output.textContent = `${possible.toLocaleString("en")} of ${logits.length.toLocaleString("en")} tokens can be drawn.`;
  };
  show();
};
