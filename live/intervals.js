/* A text as an interval, word by word, in book/likelihood/surprise.md: its surprise is its length. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.intervals = (place) => {
  const { make, drawn, told, smallEnglish } = nextToken;
  const { vocabulary, twentieths } = smallEnglish;
  let text = []; // numbers of words; 0 is the end
  const set = (change) => {
    change();
    show();
  };
  const drawing = drawn("svg", place, { role: "img" });
  const said = make("output", place);
  const next = make("div", place, { className: "controls" });

  /* The interval after each word: [low, width]. */
  const intervals = () => {
    const found = [[0, 1]];
    text.forEach((word, t) => {
      const row = twentieths[t ? text[t - 1] : 0];
      const [low, width] = found[t];
      const before = row.slice(0, word).reduce((a, b) => a + b, 0);
      found.push([low + (width * before) / 20, (width * row[word]) / 20]);
    });
    return found;
  };

  const draw = (found) => {
    const [left, wide, high, pitch, most] = [4, 332, 26, 44, 6];
    const bars = text.length + (text.at(-1) === 0 ? 0 : 1);
    const first = Math.max(0, bars - most);
    drawing.replaceChildren();
    drawing.setAttribute("viewBox", `0 0 340 ${pitch * (bars - first) + 4}`);
    drawing.setAttribute("aria-label", `An interval ${found.at(-1)[1].toPrecision(3)} wide`);
    for (let t = first; t < bars; t += 1) {
      const top = 2 + pitch * (t - first);
      let x = left;
      twentieths[t ? text[t - 1] : 0].forEach((part, word) => {
        if (!part) return;
        const width = (wide * part) / 20;
        const chosen = text[t] === word;
        drawn("rect", drawing, { x, y: top, width, height: high, class: chosen ? "piece chosen" : "piece" });
        if (vocabulary[word].length * 7.5 < width) {
          const label = drawn("text", drawing, { x: x + width / 2, y: top + 18, "text-anchor": "middle", class: chosen ? "on" : "" });
          label.textContent = vocabulary[word];
        }
        if (chosen && t + 1 < bars) {
          for (const [from, to] of [[x, left], [x + width, left + wide]]) {
            drawn("line", drawing, { x1: from, x2: to, y1: top + high, y2: top + pitch, class: "line" });
          }
        }
        x += width;
      });
    }
  };

  const show = () => {
    const found = intervals();
    const [low, width] = found.at(-1);
    draw(found);
    const words = text.map((word) => vocabulary[word]).join(" ") || "Nothing yet";
    said.textContent = `${words}: from ${told(low, 6)} to ${told(low + width, 6)}. Width ${told(width, 6)}, so ${told(-Math.log(width))} nats, ${told(-Math.log2(width))} bits.`;
    next.replaceChildren();
    if (text.at(-1) !== 0) {
      twentieths[text.at(-1) ?? 0].forEach((part, word) => {
        if (!part) return;
        const button = make("button", next, { type: "button", textContent: `${vocabulary[word]} ${told(part / 20)}` });
        button.addEventListener("click", () => set(() => text.push(word)));
      });
    }
    const back = make("button", next, { type: "button", textContent: "Take one back" });
    back.addEventListener("click", () => set(() => text.pop()));
    (next.querySelector("button") ?? back).focus({ preventScroll: true });
  };
  show();
};
