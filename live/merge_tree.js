/* The merges of a text, one by one, ours beside GPT-2's, in book/tokens/bpe.md. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.merge_tree = (place) => {
  const { make, drawn, splitWords, symbols, BytePairTokenizer, ourMerges, gpt2Merges } = nextToken;
  const [CELL, LEVEL, HIGH, LEAF] = [22, 38, 30, 22]; // pixels
  const EXAMPLES = ["the matches", "every iterable is callable", "東京", "The naïve quokka returns 42 if the"];
  const lists = Object.entries({ "our merges": ourMerges, "GPT-2’s": gpt2Merges }).map(([name, pairs]) => ({
    name, size: (pairs.length / 2).toLocaleString("en"), tokenizer: new BytePairTokenizer(pairs),
  }));
  let [at, last, timer] = [0, 0, null];

  /* The words at first, and after each merge of lowest rank, which is made everywhere. */
  const stepsOf = (tokenizer, text) => {
    const steps = [{ words: splitWords(text).map(symbols) }];
    for (let made; (made = tokenizer.first(steps.at(-1).words)); ) {
      steps.push({ made, words: steps.at(-1).words.map((word) => tokenizer.merge(word, made)) });
    }
    return steps;
  };
  /* A token with the tree of its parts: how many bytes wide, how many levels high. */
  const treeOf = (tokenizer, token) => {
    const parts = tokenizer.parts(token).map((part) => treeOf(tokenizer, part));
    const width = parts.reduce((sum, part) => sum + part.width, 0) || 1;
    return { token, parts, width, level: 1 + Math.max(-1, ...parts.map((part) => part.level)) };
  };
  const treesOf = ({ tokenizer }, word) => [...word].map((token) => treeOf(tokenizer, token));

  const begin = (text) => {
    field.value = text;
    for (const list of lists) {
      list.steps = stepsOf(list.tokenizer, text);
      list.levels = list.steps.at(-1).words.map((word) => Math.max(...treesOf(list, word).map((tree) => tree.level)));
    }
    last = Math.max(...lists.map(({ steps }) => steps.length - 1));
    go(0);
  };
  const go = (step) => {
    at = Math.max(0, Math.min(last, step));
    if (at === last) stop();
    show();
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  const start = () => {
    timer = setInterval(() => go(at + 1), 900);
    play.textContent = "Stop";
  };

  const group = (name) => make("div", place, { className: "controls", role: "group", ariaLabel: name });
  const button = (parent, text, act) => {
    const made = make("button", parent, { type: "button", textContent: text });
    made.addEventListener("click", () => {
      const playing = timer;
      stop();
      act(playing);
    });
    return made;
  };
  const texts = group("texts");
  for (const text of EXAMPLES) button(texts, text, () => begin(text));
  const field = make("input", make("label", texts, { textContent: "Your text " }), { maxLength: 60, autocomplete: "off", autocapitalize: "off", spellcheck: false });
  field.addEventListener("input", () => {
    stop();
    begin(field.value);
  });
  const keys = group("merges");
  const back = button(keys, "Back", () => go(at - 1));
  const next = button(keys, "Next merge", () => go(at + 1));
  const play = button(keys, "Play", (playing) => playing || at === last || start());
  const end = button(keys, "To the end", () => go(last));
  button(keys, "As it was", () => begin(EXAMPLES[0]));
  place.addEventListener("pointerdown", (event) => event.target.closest("button") || stop());
  keys.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    stop();
    go(to);
  });
  const output = make("output", place);
  for (const list of lists) {
    list.says = make("b", place);
    list.trees = make("div", place, { className: "trees" });
    list.trees.setAttribute("role", "img");
  }

  const draw = (drawing, tokenizer, { token, parts, width, level }, left, top, made, look) => {
    const [middle, y] = [left + (CELL * width) / 2, top - LEVEL * level];
    let x = left;
    for (const part of parts) {
      drawn("path", drawing, { class: "line", d: `M${x + (CELL * part.width) / 2} ${y + HIGH}V${top - LEVEL * part.level}` });
      draw(drawing, tokenizer, part, x, top, made, "piece");
      x += CELL * part.width;
    }
    drawn("rect", drawing, { x: left + 1, y, width: CELL * width - 2, height: level ? HIGH : LEAF, rx: 3, class: token === made ? "chosen" : look });
    const write = (text, down, size) =>
      (drawn("text", drawing, { x: middle, y: y + down, "text-anchor": "middle", class: token === made ? "on" : "", style: size }).textContent = text);
    write(tokenizer.spelled(token), level ? 13 : 16);
    if (level) write((token.charCodeAt() - 256).toLocaleString("en"), 26, "font-size: 11px");
  };

  const show = () => {
    const joins = [];
    const counts = lists.map((list) => {
      const { name, size, tokenizer, steps, trees, levels } = list;
      const { words, made } = steps[Math.min(at, steps.length - 1)];
      const now = at < steps.length && made;
      const spelled = (tokens) => [...tokens].map((token) => tokenizer.spelled(token));
      const tokens = words.join("");
      if (now) joins.push(`${name} join ${spelled(tokenizer.parts(made)).join(" + ")}`);
      list.says.textContent = `${name} (${size}): ${tokens.length} token${tokens.length === 1 ? "" : "s"}`;
      trees.ariaLabel = `${name}: ${spelled(tokens).join(" · ")}`;
      trees.replaceChildren();
      words.forEach((word, w) => {
        const [wide, top] = [CELL * steps[0].words[w].length, LEVEL * levels[w] + 1];
        const drawing = drawn("svg", trees, { viewBox: `0 0 ${wide} ${top + LEAF + 1}`, style: `width: ${wide}px` });
        let left = 0;
        for (const tree of treesOf(list, word)) {
          draw(drawing, tokenizer, tree, left, top, now, "token");
          left += CELL * tree.width;
        }
      });
      return tokens.length;
    });
    const [ours, theirs] = counts;
    const fewer = ours === theirs ? "both need as many" : `${ours < theirs ? "ours" : "GPT-2’s"} need fewer`;
    output.textContent = `Step ${at} of ${last}: ${joins.join("; ") || "the bytes"}. Tokens: ${ours} by our merges, ${theirs} by GPT-2’s${at === last ? `: ${fewer}` : ""}.`;
    for (const key of [back, next, play, end]) key.ariaDisabled = String(at === (key === back ? 0 : last));
  };
  begin(EXAMPLES[0]);
};
