/* What a cache saves, call by call, in book/gpt/cache.md: the tokens that a small GPT computes, without it and with it. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.cache_steps = (place) => {
  const { make, drawn, told, choice, slideHandle, calls, cached, withoutCache, withCache } = nextToken;
  const file = nextToken.model;
  const model = new nextToken.GPT(nextToken.readWeights(file.weights), file.config);
  const names = nextToken.spelled(file.tokenizer).map((part) => new TextDecoder().decode(Uint8Array.from(part)));
  const [MOST, CELL, TOP, PANELS] = [15, 10, 24, [3, 177]];
  const WAYS = [["moves by one", "one"], ["moves by half", "half"], ["rolls on", "rolling"]];
  const begin = () => ({ prompt: 3, length: 10, limit: 8, beyond: "rolling" });
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

  /* The logits of the last call with a cache; no call is made twice for that. */
  const rolled = {};
  const logitsOf = (ids, all) => (rolled[[now.prompt, now.limit, now.beyond, all.length]] ??= withCache(model, ids, all, now.limit));

  const shows = [];
  const knob = (parent, name, key, options) => shows.push(choice(parent, name, options, () => now[key], (value) => set({ [key]: value })));
  knob(make("div", place, { className: "controls" }), "beyond the limit the window", "beyond", WAYS);
  const keys = make("div", place, { className: "controls" });
  const next = make("button", keys, { type: "button", textContent: "Next token" });
  const back = make("button", keys, { type: "button", textContent: "As it was" });
  next.addEventListener("click", () => {
    set({ length: now.length + 1 });
    if (next.disabled) back.focus();
  });
  back.addEventListener("click", () => set(begin()));
  const written = make("p", place, { className: "written" });
  const output = make("output", place);
  make("p", place, { textContent: "A row for each call of the model, a column for each token:" });

  const drawing = drawn("svg", place, { viewBox: "0 0 340 246" });
  const still = drawn("g", drawing, { "aria-hidden": true });
  const moving = drawn("g", drawing, { "aria-hidden": true });
  const write = (parent, x, y, text, more) => (drawn("text", parent, { x, y, ...more }).textContent = text);
  PANELS.forEach((x, n) => write(still, x, 14, ["without a cache", "with a cache"][n]));
  [["chosen", 177, 195, "computed"], ["kept", 267, 195, "kept"], ["stale", 177, 214, "kept, but wrong"]].forEach(([kind, x, y, says]) => {
    drawn("path", still, { class: kind, d: `M${x} ${y}h9v9h-9z` });
    write(still, x + 14, y + 9, says);
  });
  write(still, 177, 242, "× writes another");
  write(still, 3, 224, "drag the end of the text");
  const line = { left: PANELS[0], right: PANELS[0] + MOST * CELL, y: 197, most: MOST, colour: "#0072b2" };
  shows.push(slideHandle(drawing, "tokens in the text", line, () => now.length, (length) => set({ length })));
  const draw = (all, wrong) => {
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
      write(moving, x + prefill * CELL + 5, TOP + prefill * CELL - 4, "prefill");
      write(moving, x + MOST * CELL, TOP + limit * CELL - 4, "limit", { "text-anchor": "end" });
      drawn("path", moving, { class: "line", d: `M${x} ${TOP + limit * CELL - 0.5}h${MOST * CELL}` });
      drawn("path", moving, { class: "now", d: `M${x - 2} ${TOP + last * CELL - 12}h${last * CELL + 3}v13h${-last * CELL - 3}z` });
    });
    for (const { end } of wrong) write(moving, PANELS[1] + end * CELL + 2, TOP + end * CELL, "×", { class: "wrong" });
    for (const [kind, d] of Object.entries(shapes)) drawn("path", moving, { class: kind, d });
  };

  const knobs = make("div", place, { className: "controls" });
  knob(knobs, "prompt", "prompt", [["3", 3], ["6", 6]]);
  knob(knobs, "context limit", "limit", [["8", 8], ["12", 12]]);
  const table = make("table", place);
  const show = () => {
    const { ids, logits } = writeText();
    const all = calls(now.prompt, now.length, now.limit, now.beyond);
    const last = all.at(-1);
    const kept = logitsOf(ids, all);
    const off = Math.max(...logits.map((logit, w) => Math.abs(logit - kept[w])));
    const [right, said] = [logits, kept].map((each) => `“${names[best(each)].replaceAll(" ", "␣").replaceAll("\n", "⏎")}”`);
    const cost = (beyond) => calls(now.prompt, now.length, now.limit, beyond).reduce((total, { computed }) => total + computed, 0);
    const sum = (key) => all.reduce((total, call) => total + call[key], 0);
    const both = (...counts) => counts.map((key) => `${last[key]} (${sum(key)})`);

    for (const each of shows) each();
    drawing.lastChild.ariaValueMin = now.prompt;
    next.disabled = now.length === MOST;
    draw(all, all.filter((call, n) => call.full && now.beyond === "rolling" && best(logitsOf(ids, all.slice(0, n + 1))) !== ids[call.end]));
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
    const others = WAYS.filter(([, beyond]) => beyond !== now.beyond).map(([name, beyond]) => `${cost(beyond)} if it ${name}`);
    output.textContent = [
      `Call ${all.length}${all.length > 1 ? "" : " (prefill)"}: ${last.computed} token${last.computed > 1 ? "s" : ""} computed with the cache, ${cost(now.beyond)} so far (${others.join(", ")}).`,
      last.full && now.beyond === "one" ? "Every token has moved to another place: no kept key is right." : "",
      last.full && now.beyond === "half" ? "The older half has left; the other is read once more." : "",
      off < 1e-9
        ? `Right: it says ${right}, as without a cache on the same ${last.read} tokens, with the same logits.`
        : `Wrong: its logits are off by up to ${told(off)}. ${right === said ? `By luck it still writes ${right}.` : `It writes ${said}; without a cache the same ${last.read} tokens say ${right}.`}`,
    ].filter(Boolean).join(" ");
  };
  show();
};
