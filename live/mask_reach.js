/* A mask to click together, and what reaches what after some layers, in book/attention/masks.md. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.mask_reach = (place) => {
  const { make, choice, maskOf, causalMask, bandedMask, reach } = nextToken;
  const T = 6;
  const both = (one, other) => maskOf(T, (i, j) => one[i][j] && other[i][j]);
  const ready = {
    everything: () => maskOf(T, () => true),
    causal: () => causalMask(T),
    "band of 2": () => both(causalMask(T), bandedMask(T, 2)),
    nobody: () => maskOf(T, () => false),
  };
  let now = { name: "band of 2", mask: ready["band of 2"](), layers: 1 };
  const set = (change) => {
    change();
    show();
  };
  make("p", place, { textContent: "A row for each output, a column for each input. A cell is opened or shut." });
  const masks = make("div", place, { className: "controls" });
  const start = (name) => set(() => (now = { ...now, name, mask: ready[name]() }));
  const names = choice(masks, "mask", Object.keys(ready).map((name) => [name, name]), () => now.name, start);
  const depth = make("div", place, { className: "controls" });
  const options = [1, 2, 3, 4, 5].map((layers) => [String(layers), layers]);
  const layers = choice(depth, "layers", options, () => now.layers, (number) => set(() => (now.layers = number)));

  const grid = make("div", place, { className: "grid" });
  const cells = maskOf(T, () => true).map((row, i) =>
    row.map((_, j) => {
      const cell = make("button", grid, { type: "button" });
      cell.addEventListener("click", () => set(() => {
        now.mask[i][j] = !now.mask[i][j];
        now.name = "";
      }));
      return cell;
    }),
  );
  const output = make("output", place);

  const show = () => {
    const reached = reach(now.mask, now.layers);
    names();
    layers();
    cells.forEach((row, i) =>
      row.forEach((cell, j) => {
        cell.className = now.mask[i][j] ? "open" : reached[i][j] ? "reached" : "";
        cell.ariaPressed = String(now.mask[i][j]);
        const how = now.mask[i][j] ? "sees" : reached[i][j] ? "hears of" : "knows nothing of";
        cell.ariaLabel = `output ${i + 1} ${how} input ${j + 1}`;
      }),
    );
    const count = reached.flat().filter(Boolean).length;
    output.textContent = `After ${now.layers} layer${now.layers > 1 ? "s" : ""} ${reached[T - 1].filter(Boolean).length} of ${T} inputs reach the last output; in all, ${count} of ${T * T} pairs.`;
  };
  show();
};
