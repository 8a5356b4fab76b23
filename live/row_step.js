/* One row of logits, one example at a time, in book/likelihood/gradient_descent.md. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.row_step = (place) => {
  const { make, told, choice, softmax, gradientOfRow } = nextToken;
  const words = ["end", "sleeps", "walks", "cat"];
  const begin = () => ({ logits: [0.1, 0.5, 0.3, 0.1].map((p) => Math.log(p / 0.1)), rate: 1, steps: 0, said: "" });
  let now = begin();
  const set = (change) => {
    change();
    show();
  };
  const above = make("div", place, { className: "controls" });
  const rates = [0.1, 1, 10].map((rate) => [String(rate), rate]);
  const rate = choice(above, "learning rate", rates, () => now.rate, (value) => set(() => (now.rate = value)));
  make("button", above, { type: "button", textContent: "As it was" }).addEventListener("click", () => set(() => (now = begin())));

  const table = make("table", place);
  const head = make("tr", make("thead", table));
  for (const name of ["after cat came", "logit", "probability"]) make("th", head, { textContent: name, scope: "col" });
  const body = make("tbody", table);
  const rows = words.map((word, w) => {
    const row = make("tr", body);
    const button = make("button", make("th", row, { scope: "row" }), { type: "button", className: "word", textContent: word });
    button.addEventListener("click", () => set(() => {
      const before = softmax(now.logits)[w];
      const gradient = gradientOfRow(now.logits, w);
      now.logits = now.logits.map((z, i) => z - now.rate * gradient[i]);
      now.steps += 1;
      now.said = `“${word}” had ${told(before)}, so its logit rises by ${told(-now.rate * gradient[w])}, and that of the others falls by their own probability.`;
    }));
    const logit = make("td", row, { className: "told" });
    const share = make("td", row, { className: "share" });
    const bar = make("span", share, { className: "bar" });
    return [logit, bar, make("span", share)];
  });
  const output = make("output", place);

  const show = () => {
    const shares = softmax(now.logits);
    rows.forEach(([logit, bar, share], w) => {
      logit.textContent = told(now.logits[w]);
      share.textContent = told(shares[w]);
      bar.style.width = `${100 * shares[w]}%`;
    });
    rate();
    output.textContent = now.steps ? `Step ${now.steps}: ${now.said}` : "Touch the word that comes next.";
  };
  show();
};
