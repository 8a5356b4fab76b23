/* The hill of the likelihood over theta, in book/likelihood/maximum_likelihood.md: see more, and climb. */
"use strict";

nextToken.figures ??= {};

nextToken.figures.likelihood_hill = (place) => {
  const { make, drawn, told, slideHandle, logLikelihood } = nextToken;
  const begin = () => ({ sleeps: 2, other: 2, percent: 35 });
  let now = begin();
  const set = (change) => {
    change();
    show();
  };
  const row = make("div", place, { className: "controls" });
  const more = (text, change) =>
    make("button", row, { type: "button", textContent: text }).addEventListener("click", () => set(change));
  more("+ sleeps", () => (now.sleeps += 1));
  more("+ walks or end", () => (now.other += 1));
  more("ten times as many", () => now.sleeps + now.other < 5_000 && ((now.sleeps *= 10), (now.other *= 10)));
  more("As it was", () => (now = begin()));

  const [left, right, top, foot] = [20, 320, 12, 140];
  const drawing = drawn("svg", place, { viewBox: "0 0 340 190", role: "group", "aria-label": "Likelihood over theta" });
  const x = (theta) => left + (right - left) * theta;
  const hill = drawn("path", drawing, { class: "curve" });
  const height = drawn("line", drawing, { class: "line" });
  drawn("line", drawing, { x1: left, x2: right, y1: foot, y2: foot, class: "line" });
  for (const theta of [0, 0.5, 1]) drawn("text", drawing, { x: x(theta), y: 180, "text-anchor": "middle" }).textContent = theta;
  const track = { left, right, y: foot, most: 100, colour: "#e69f00" };
  const handle = slideHandle(drawing, "θ in percent", track, () => now.percent, (value) => set(() => (now.percent = value)));
  const output = make("output", place);

  const show = () => {
    const total = now.sleeps + now.other;
    const best = now.sleeps / total;
    const most = logLikelihood(best, now.sleeps, now.other);
    const y = (theta) => foot - (foot - top) * Math.exp(logLikelihood(theta, now.sleeps, now.other) - most);
    const points = Array.from({ length: 601 }, (_, i) => `${x(i / 600).toFixed(1)} ${y(i / 600).toFixed(1)}`);
    hill.setAttribute("d", `M ${points.join(" L ")}`);
    const theta = now.percent / 100;
    for (const [name, value] of Object.entries({ x1: x(theta), x2: x(theta), y1: foot, y2: y(theta) })) {
      height.setAttribute(name, value);
    }
    handle();
    const share = Math.exp(logLikelihood(theta, now.sleeps, now.other) - most);
    output.textContent = `${now.sleeps} of ${total} cats sleep. Under θ = ${told(theta)} this is ${told(share, 3)} times as probable as at the top, θ = ${told(best)}.`;
  };
  show();
};
