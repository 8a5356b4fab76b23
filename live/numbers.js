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
