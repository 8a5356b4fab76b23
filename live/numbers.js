/* What several figures are made of: elements, numbers as the book prints them, cells that one changes. */
"use strict";

globalThis.nextToken ??= {};

nextToken.make = (tag, parent, set = {}) => parent.appendChild(Object.assign(document.createElement(tag), set));

nextToken.told = (number, digits = 2) =>
  Number.isFinite(number) ? number.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−") : "−∞";

/* A whole number: its upper half adds one, its lower half takes one; so do the arrows up and down.
   Returns what shows the number again. */
nextToken.spinCell = (parent, name, least, most, read, write) => {
  const button = nextToken.make("button", parent, { type: "button", className: "spin", ariaLabel: name });
  button.setAttribute("role", "spinbutton");
  Object.assign(button, { ariaValueMin: least, ariaValueMax: most });
  const change = (by) => write(Math.max(least, Math.min(most, read() + by)));
  button.addEventListener("click", (event) => {
    const box = button.getBoundingClientRect();
    change(event.detail && event.clientY > box.top + box.height / 2 ? -1 : 1);
  });
  button.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    change(by);
  });
  return () => {
    button.textContent = nextToken.told(read(), 0);
    button.ariaValueNow = read();
  };
};

/* Buttons of which one is pressed; options are [text, value]. Returns what shows the choice again. */
nextToken.choice = (parent, name, options, read, write) => {
  const group = nextToken.make("div", parent, { className: "choice", role: "group", ariaLabel: name });
  nextToken.make("span", group, { textContent: name });
  const buttons = options.map(([text, value]) => {
    const button = nextToken.make("button", group, { type: "button", textContent: text });
    button.addEventListener("click", () => write(value));
    return [button, value];
  });
  return () => buttons.forEach(([button, value]) => (button.ariaPressed = String(value === read())));
};

/* An element of a drawing, with its attributes. */
nextToken.drawn = (tag, parent, attributes = {}) => {
  const node = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

/* Taken hold of by mouse or finger, under which the page does not scroll then (Chromium has no touch-action within an SVG). */
nextToken.hold = (handle, start, move) => {
  handle.addEventListener("touchstart", (event) => event.preventDefault());
  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    event.preventDefault();
    handle.focus();
    start(event);
  });
  handle.addEventListener("pointermove", (event) => handle.hasPointerCapture(event.pointerId) && move(event));
};

/* A handle on a line from x = left to right: whole numbers from 0 to most; dragged, or moved by the arrows left and right,
   or by a tap on its track, if it has one. Returns what shows its place again. */
nextToken.slideHandle = (drawing, name, { left, right, y, most, colour, track }, read, write) => {
  const handle = nextToken.drawn("g", drawing, { role: "slider", tabindex: 0, "aria-label": name, class: "handle" });
  Object.assign(handle, { ariaValueMin: 0, ariaValueMax: most });
  nextToken.drawn("circle", handle, { r: 22, fill: "transparent" }); // what a finger hits
  nextToken.drawn("circle", handle, { r: 9, fill: colour });
  const to = (value) => write(Math.max(0, Math.min(most, Math.round(value))));
  const move = ({ clientX }) => {
    const box = drawing.getBoundingClientRect();
    const x = ((clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
    to(((x - left) / (right - left)) * most);
  };
  nextToken.hold(handle, () => {}, move);
  track?.addEventListener("click", move);
  handle.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -most, End: most }[event.key];
    if (!by) return;
    event.preventDefault();
    to(read() + by);
  });
  return () => {
    handle.setAttribute("transform", `translate(${left + ((right - left) * read()) / most} ${y})`);
    handle.ariaValueNow = read();
  };
};
