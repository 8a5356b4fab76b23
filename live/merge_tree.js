/* The merges of a text, one by one, ours beside GPT-2's, in book/tokens/bpe.md. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.merge_tree = (place) => {
  const { make, drawn, splitWords, symbols, BytePairTokenizer, ourMerges, gpt2Merges } = nextToken;
  const [CELL, LEVEL, HIGH, LEAF] = [22, 38, 30, 22]; // pixels
  const EXAMPLES = ["an iterable matches", "every object is callable", "東京", "The naïve quokka returns 42 if the"];
  const lists = Object.entries({ "our merges": ourMerges, "GPT-2’s": gpt2Merges }).map(([name, pairs]) => ({
    name, size: (pairs.length / 2).toLocaleString("en"), tokenizer: new BytePairTokenizer(pairs),
  }));
  let [at, last, texts] = [0, 0, []]; // the words as they are written

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
    texts = splitWords(text).map((word) => word.replaceAll(" ", "␣"));
    last = Math.max(...lists.map(({ steps }) => steps.length - 1));
    go(last);
  };
  const go = (step) => {
    at = Math.max(0, Math.min(last, step));
    show();
  };

  const group = (name) => make("div", place, { className: "controls", role: "group", ariaLabel: name });
  const button = (parent, textContent, act) => {
    const made = make("button", parent, { type: "button", textContent });
    made.addEventListener("click", act);
    return made;
  };
  const above = group("merges");
  const field = make("input", make("label", above, { textContent: "Your text " }), { maxLength: 60, autocomplete: "off", autocapitalize: "off", spellcheck: false });
  field.addEventListener("input", () => begin(field.value));
  const keys = make("div", above, { className: "choice" });
  const ways = { Start: () => 0, Back: () => at - 1, Next: () => at + 1, End: () => last };
  const steps = Object.entries(ways).map(([name, to]) => button(keys, name, () => go(to())));
  keys.addEventListener("keydown", (event) => {
    const to = ways[{ ArrowLeft: "Back", ArrowRight: "Next", Home: "Start", End: "End" }[event.key]];
    if (!to) return;
    event.preventDefault();
    go(to());
  });
  const output = make("output", place);
  const sides = make("div", place, { className: "sides" });
  for (const list of lists) {
    const side = make("div", sides);
    list.says = make("b", side);
    list.trees = make("div", side, { className: "trees" });
    list.trees.setAttribute("role", "img");
  }
  make("p", place, { textContent: "Pale blue: a token now. Dark blue: just joined. Below them their parts; the number is the rank of the merge." });
  const others = group("texts");
  EXAMPLES.forEach((text, n) => button(others, n ? text : "As it was", () => {
    begin(text);
    above.scrollIntoView({ block: "nearest" });
  }));

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
      return words.map((word) => word.length);
    });
    const [ours, theirs] = counts.map((each) => each.reduce((sum, count) => sum + count, 0));
    const fewer = (one, other) =>
      texts.flatMap((word, w) => (counts[one][w] < counts[other][w] ? `“${word}” (${counts[one][w]}, not ${counts[other][w]})` : [])).join(", ") || "no word";
    const found = at < last ? "" : ` Ours need fewer for ${fewer(0, 1)}; GPT-2’s for ${fewer(1, 0)}.`;
    output.textContent = texts.length ? `Step ${at} of ${last}: ${joins.join("; ") || "the bytes"}. Tokens: ${ours} by our merges, ${theirs} by GPT-2’s.${found}` : "Write a text.";
    steps.forEach((key, k) => (key.ariaDisabled = String(at === (k < 2 ? 0 : last))));
  };
  begin(EXAMPLES[0]);
};
