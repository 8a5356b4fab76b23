/* The hands of a clock that reads positions, in book/attention/positions.md: move one place, or both. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.position_clock = (place) => {
  const { make, drawn, told, dot, choice, slideHandle, sinusoidalPosition } = nextToken;
  const [MOST, CHANNELS, R] = [60, 6, 46];
  let now = { earlier: 20, later: 23, together: true, base: 100 };
  const set = (change) => {
    change();
    show();
  };

  const above = make("div", place, { className: "controls" });
  const ways = [["both", true], ["one alone", false]];
  const together = choice(above, "move", ways, () => now.together, (value) => set(() => (now.together = value)));
  const bases = [10, 100, 10_000].map((base) => [base.toLocaleString("en"), base]);
  const base = choice(above, "base", bases, () => now.base, (value) => set(() => (now.base = value)));

  const drawing = drawn("svg", place, { viewBox: "0 0 340 190", role: "group", "aria-label": "Three dials and a line of places" });
  const hands = ["fast hand", "middle hand", "slow hand"].map((name, i) => {
    const dial = drawn("g", drawing, { transform: `translate(${58 + 112 * i} 54)` });
    drawn("circle", dial, { r: R, class: "line" });
    drawn("text", dial, { y: 66, "text-anchor": "middle" }).textContent = name;
    return ["orange", "blue"].map((colour) => drawn("line", dial, { class: `hand ${colour}` }));
  });
  const track = { left: 24, right: 316, y: 150, most: MOST };
  drawn("line", drawing, { x1: track.left, x2: track.right, y1: track.y, y2: track.y, class: "line" });
  for (const t of [0, 20, 40, 60]) {
    const x = track.left + ((track.right - track.left) * t) / MOST;
    drawn("text", drawing, { x, y: 184, "text-anchor": "middle" }).textContent = t;
  }
  const move = (which, other) => (value) => set(() => {
    const by = value - now[which];
    if (now.together && (now[other] + by < 0 || now[other] + by > MOST)) return;
    now[which] = value;
    if (now.together) now[other] += by;
  });
  const handles = [["earlier", "later", "#e69f00"], ["later", "earlier", "#0072b2"]].map(([which, other, colour]) =>
    slideHandle(drawing, `the ${which} place`, { ...track, colour }, () => now[which], move(which, other)),
  );
  const output = make("output", place);

  const show = () => {
    const tips = [now.earlier, now.later].map((t) => sinusoidalPosition(t, CHANNELS, now.base));
    hands.forEach((pair, i) => pair.forEach((hand, n) => {
      hand.setAttribute("x2", 0.95 * R * tips[n][2 * i]);
      hand.setAttribute("y2", -0.95 * R * tips[n][2 * i + 1]);
    }));
    for (const each of [together, base, ...handles]) each();
    output.textContent = `places ${now.earlier} and ${now.later}, ${Math.abs(now.later - now.earlier)} apart; product of the two vectors: ${told(dot(...tips))}`;
  };
  show();
};
