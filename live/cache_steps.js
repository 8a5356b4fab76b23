/* What a cache saves, call by call, in book/gpt/cache.md: the tokens that a small GPT computes, without it and with it. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.cache_steps = (place) => {
  const { make, drawn, told, choice, slideHandle, calls, cached, withoutCache, withCache } = nextToken;
  const file = nextToken.model;
  const model = new nextToken.GPT(nextToken.readWeights(file.weights), file.config);
  const names = nextToken.spelled(file.tokenizer).map((part) => new TextDecoder().decode(Uint8Array.from(part)));
  const [MOST, CELL, TOP, PANELS] = [15, 10, 24, [3, 177]];
  const begin = () => ({ prompt: 3, length: 5, limit: 8, beyond: "one" });
  let now = begin();
  const set = (change) => {
    Object.assign(now, change);
    now.length = Math.max(now.prompt, Math.min(MOST, now.length));
    show();
  };

  /* What the model writes without a cache, its likeliest token each time; no window is read twice for that. */
  const windows = {};
  const best = (logits) => logits.indexOf(Math.max(...logits));
  const writeText = () => {
    const ids = ["A", " list", " of"].map((word) => names.indexOf(word));
    let logits;
    for (const call of calls(ids.length, now.length, now.limit, now.beyond)) {
      logits = windows[ids.slice(call.begin)] ??= withoutCache(model, ids, call);
      ids.push(best(logits));
    }
    return { ids, logits };
  };

  make("p", place, { textContent: "A row for each call of the model, a column for each token." });
  const keys = make("div", place, { className: "controls" });
  const next = make("button", keys, { type: "button", textContent: "Next token" });
  const back = make("button", keys, { type: "button", textContent: "As it was" });
  next.addEventListener("click", () => {
    set({ length: now.length + 1 });
    if (next.disabled) back.focus();
  });
  back.addEventListener("click", () => set(begin()));
  const written = make("p", place, { className: "written" });

  const drawing = drawn("svg", place, { viewBox: "0 0 340 228" });
  const still = drawn("g", drawing, { "aria-hidden": true });
  const moving = drawn("g", drawing, { "aria-hidden": true });
  const write = (parent, x, y, text, more) => (drawn("text", parent, { x, y, ...more }).textContent = text);
  PANELS.forEach((x, n) => write(still, x, 14, ["without a cache", "with a cache"][n]));
  [["chosen", 177, 195, "computed"], ["kept", 267, 195, "kept"], ["stale", 177, 214, "kept, but wrong"]].forEach(([kind, x, y, says]) => {
    drawn("path", still, { class: kind, d: `M${x} ${y}h9v9h-9z` });
    write(still, x + 14, y + 9, says);
  });
  write(still, 3, 224, "drag the end of the text");
  const line = { left: PANELS[0], right: PANELS[0] + MOST * CELL, y: 197, most: MOST, colour: "#0072b2" };
  const shows = [slideHandle(drawing, "tokens in the text", line, () => now.length, (length) => set({ length }))];
  const draw = (all) => {
    moving.replaceChildren();
    const shapes = { chosen: "", kept: "", stale: "" };
    const [prefill, limit, last] = [all[0].end, now.limit, all.at(-1)].map((part) => part.end ?? part);
    PANELS.forEach((x, n) => {
      for (const { begin: first, end, computed, full } of all) {
        for (let s = first; s < end; s += 1) {
          const kind = !n || s >= end - computed ? "chosen" : full && now.beyond === "rolling" ? "stale" : "kept";
          shapes[kind] += `M${x + s * CELL} ${TOP + (end - 1) * CELL}h9v9h-9z`;
        }
      }
      write(moving, x + prefill * CELL + 5, TOP + prefill * CELL, "prefill");
      write(moving, x + MOST * CELL, TOP + limit * CELL - 4, "limit", { "text-anchor": "end" });
      drawn("path", moving, { class: "line", d: `M${x} ${TOP + limit * CELL - 0.5}h${MOST * CELL}` });
      drawn("path", moving, { class: "now", d: `M${x - 2} ${TOP + last * CELL - 12}h${MOST * CELL + 3}v13h${-MOST * CELL - 3}z` });
    });
    for (const [kind, d] of Object.entries(shapes)) drawn("path", moving, { class: kind, d });
  };

  const knobs = make("div", place, { className: "controls" });
  const knob = (name, key, options) => shows.push(choice(knobs, name, options, () => now[key], (value) => set({ [key]: value })));
  knob("prompt", "prompt", [["3", 3], ["6", 6]]);
  knob("context limit", "limit", [["8", 8], ["12", 12]]);
  knob("beyond it the window", "beyond", [["moves by one", "one"], ["moves by half", "half"], ["rolls on", "rolling"]]);

  const table = make("table", place);
  const output = make("output", place);
  const show = () => {
    const { ids, logits } = writeText();
    const all = calls(now.prompt, now.length, now.limit, now.beyond);
    const last = all.at(-1);
    const kept = withCache(model, ids, all, now.limit);
    const off = Math.max(...logits.map((logit, w) => Math.abs(logit - kept[w])));
    const [right, said] = [logits, kept].map((each) => `“${names[best(each)].replaceAll(" ", "␣").replaceAll("\n", "⏎")}”`);
    const sum = (key) => all.reduce((total, call) => total + call[key], 0);
    const both = (...counts) => counts.map((key) => `${last[key]} (${sum(key)})`);

    for (const each of shows) each();
    next.disabled = now.length === MOST;
    draw(all);
    written.replaceChildren();
    ids.slice(0, last.end).forEach((id, s) => {
      const tag = s < last.begin ? "s" : s < now.prompt ? "b" : "span";
      make(tag, written, { textContent: names[id].replaceAll("\n", "⏎") });
    });
    table.replaceChildren();
    for (const cells of [
      ["now (in all)", "no cache", "cache"],
      ["tokens computed", ...both("read", "computed")],
      ["scores per head", ...both("scores", "cachedScores")],
      ["bytes kept", ...[0, last.kept].map((tokens) => (4 * cached(file.config, tokens)).toLocaleString("en"))],
      ["next token", right, said],
    ]) {
      const row = make("tr", table);
      cells.forEach((cell, n) => make(n && row !== table.firstChild ? "td" : "th", row, { textContent: cell, className: "told" }));
    }
    const [a, b] = [sum("read"), sum("computed")];
    output.textContent = [
      all.length === 1 ? "Prefill:" : `Decoding, call ${all.length}:`,
      `${last.read} tokens computed without a cache, ${last.computed} with it; so far ${a} and ${b}, ${told(a / b, 1)} times as many.`,
      last.full && now.beyond === "one" ? "Every token has moved to another place: no kept key is right." : "",
      last.full && now.beyond === "half" ? "The older half has left; the other is read once more." : "",
      off < 1e-9 ? `Both say ${right}, with the same logits.` : `But kept keys are wrong here: logits are off by up to ${told(off)};`,
      off < 1e-9 ? "" : right === said ? `both still say ${right}.` : `the cache says ${said}, not ${right}.`,
    ].join(" ").replaceAll(/ +/g, " ");
  };
  show();
};
