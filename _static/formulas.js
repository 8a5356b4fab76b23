/* Formulas inside a line, as a printed page sets them. MathJax 3 makes each of them one box, which
   no line can break: a long one would lose its right end on a phone, and the full stop behind one
   may begin a line. So a long formula may break after a relation, an operator or a slash at its top
   level, and punctuation stays with the formula that it touches. A sign that belongs to one number,
   the bar of a condition and what stands between brackets do not break, unless nothing else would. */
"use strict";

const LONG = 12; // signs; shorter formulas fit on any line
const TOO_LONG = 26; // signs between two breaks that may not fit on a phone's line
const OPENING = new Set("28 5B 7B 230A 2308 27E8".split(" ").map((code) => `mjx-c${code}`));
const CLOSING = new Set("29 5D 7D 230B 2309 27E9".split(" ").map((code) => `mjx-c${code}`));
const BAR = "mjx-c2223";
const SLASH = "mjx-c2F";

const spaced = (node) => ["3", "4"].includes(node?.getAttribute("space")); // as TeX spaces operators
const glyphs = (node) => [...node.querySelectorAll("mjx-c")];

/* The only sign of a part of a formula, or nothing if it has several. */
function only(node) {
  const found = glyphs(node);
  return found.length === 1 ? [...found[0].classList].find((name) => name.startsWith("mjx-c")) : "";
}

/* The parts behind which a line may break, each with the number of brackets that are open there,
   and the number of signs up to there. */
function places(level) {
  const found = [];
  let depth = 0;
  let signs = 0;
  for (const node of level.children) {
    const sign = only(node);
    signs += glyphs(node).length;
    if (OPENING.has(sign)) depth += 1;
    if (CLOSING.has(sign)) depth -= 1;
    const isOperator = node.localName === "mjx-mo" && spaced(node) && spaced(node.nextElementSibling);
    if (sign === SLASH || (isOperator && sign !== BAR)) found.push({ node, sign, depth, signs });
  }
  return [found, signs];
}

function breakBehind({ node, sign }) {
  const next = node.nextElementSibling;
  if (!next) return;
  // A space between words is as wide as that around a sign, and goes where the line ends.
  const place = document.createElement(sign === SLASH ? "wbr" : "span");
  if (sign !== SLASH) {
    place.className = "space";
    place.textContent = " ";
    next.removeAttribute("space");
  }
  node.after(place);
}

function allowBreaks(formula) {
  const math = formula.querySelector("mjx-math");
  if (!math || glyphs(math).length <= LONG) return;
  const style = math.querySelector(":scope > mjx-mstyle:only-child"); // \displaystyle is a level
  const [found, signs] = places(style ?? math);
  const outside = found.filter((each) => each.depth <= 0);
  const inside = found.filter((each) => {
    const before = outside.findLast((other) => other.signs < each.signs)?.signs ?? 0;
    const after = outside.find((other) => other.signs > each.signs)?.signs ?? signs;
    return each.depth > 0 && after - before > TOO_LONG;
  });
  for (const place of [...outside, ...inside]) breakBehind(place);
  if (outside.length + inside.length) formula.classList.add("breaks");
}

function keepPunctuation(formula) {
  const before = formula.previousSibling;
  const after = formula.nextSibling;
  const text = (node) => (node && node.nodeType === Node.TEXT_NODE ? node.data : "");
  const [opening] = text(before).match(/[([“‘]*$/);
  const [closing] = text(after).match(/^[.,;:!?)\]”’]*/);
  if (!opening && !closing) return;
  const whole = document.createElement("span");
  whole.className = "unbroken";
  formula.replaceWith(whole);
  whole.append(opening, formula, closing);
  if (opening) before.data = before.data.slice(0, -opening.length);
  if (closing) after.data = after.data.slice(closing.length);
}

document.addEventListener("DOMContentLoaded", async () => {
  await window.MathJax?.startup?.promise;
  for (const formula of document.querySelectorAll("span.math")) {
    allowBreaks(formula);
    keepPunctuation(formula);
  }
  letKeysSlide();
});
