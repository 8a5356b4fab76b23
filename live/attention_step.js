/* One step of attention to take hold of, in book/attention/attention.md: turn the query, change a
   key, let a word be seen, leave out the root. The sums are in attention.js. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.attention_step = (place) => {
  const { make, told, spinCell, choice, attention } = nextToken;
  const words = ["the", "cat", "sat", "on", "the", "mat"];
  const ROOT = 1 / Math.sqrt(3);
  const begin = () => ({
    query: [1, 0, 1],
    keys: [[0, 2, 0], [1, -1, 2], [0, 2, 1], [-1, 2, 1], [0, 2, 0], [1, 0, 2]],
    values: [[2, 0, 0], [0, 1, 2], [1, 1, 1], [-2, 2, 1], [2, 0, 0], [1, 1, 2]],
    allowed: words.map((_, j) => j <= 2),
    scale: ROOT,
  });
  let now = begin();
  const shows = []; // what is to be shown again after a change

  const set = (change) => {
    change();
    show();
  };
  const numbers = (row, name, vector) => {
    const cells = make("td", row).appendChild(make("span", row, { className: "vector" }));
    for (const i of [0, 1, 2]) {
      const write = (value) => set(() => (vector()[i] = value));
      shows.push(spinCell(cells, `${name}, number ${i + 1}`, -3, 3, () => vector()[i], write));
    }
  };

  make("p", place, {
    textContent: "The upper half of a number adds one, the lower half takes one. A word is hidden or shown.",
  });
  const query = make("div", place, { className: "controls" });
  make("b", query, { textContent: "query of sat" });
  numbers(query, "query of sat", () => now.query);
  shows.push(
    choice(query, "divided by", [["1", 1], ["√3", ROOT], ["3", 1 / 3]], () => now.scale, (scale) => set(() => (now.scale = scale))),
  );

  const table = make("table", place);
  const head = make("tr", make("thead", table));
  for (const name of ["word", "key", "score", "weight", "value"]) make("th", head, { textContent: name, scope: "col" });
  const body = make("tbody", table);
  words.forEach((word, j) => {
    const row = make("tr", body);
    const seen = make("button", make("th", row, { scope: "row" }), { type: "button", className: "word", textContent: word });
    seen.addEventListener("click", () => set(() => (now.allowed[j] = !now.allowed[j] || now.allowed.filter(Boolean).length < 2)));
    numbers(row, `key ${j + 1}, ${word}`, () => now.keys[j]);
    const score = make("td", row, { className: "told" });
    const bar = make("span", make("td", row, { className: "share" }), { className: "bar" });
    const weight = make("span", bar.parentElement);
    const value = make("td", row, { className: "told", textContent: `(${begin().values[j].map((v) => told(v, 0)).join(", ")})` });
    shows.push(({ scores, weights }) => {
      row.classList.toggle("masked", !now.allowed[j]);
      seen.ariaPressed = String(now.allowed[j]);
      seen.ariaLabel = `${word}, ${now.allowed[j] ? "seen" : "hidden"}`;
      score.textContent = told(scores[j]);
      weight.textContent = told(weights[j]);
      bar.style.width = `${100 * weights[j]}%`;
      value.style.opacity = 0.25 + 0.75 * weights[j];
    });
  });

  const foot = make("div", place, { className: "controls" });
  const output = make("output", foot);
  const back = make("button", foot, { type: "button", textContent: "As it was" });
  back.addEventListener("click", () => set(() => (now = begin())));

  const show = () => {
    const found = attention(now.query, now.keys, now.values, now.allowed, now.scale);
    for (const each of shows) each(found);
    const best = found.weights.indexOf(Math.max(...found.weights));
    output.textContent = `output (${found.output.map((o) => told(o)).join(", ")}); most from “${words[best]}”, ${told(found.weights[best])}`;
  };
  show();
};
