/* Formulas inside a line, as a printed page sets them. MathJax 3 makes each of them one box, which
   no line can break: a long one would lose its right end on a phone, and the full stop behind one
   may begin a line. So a long formula may break after a relation, an operator or a slash at its top
   level, and punctuation stays with the formula that it touches. A sign that belongs to one number,
   the bar of a condition and what stands between brackets do not break, unless nothing else would.
   All two hundred formulas of a chapter at once would keep the page busy for a second or more: those that
   one sees first are set first, the others a few at a time, and in between the page answers. */
"use strict";

const LONG = 12; // signs; shorter formulas fit on any line
const TOO_LONG = 26; // signs between two breaks that may not fit on a phone's line
const OPENING = new Set("28 5B 7B 230A 2308 27E8".split(" ").map((code) => `mjx-c${code}`));
const CLOSING = new Set("29 5D 7D 230B 2309 27E9".split(" ").map((code) => `mjx-c${code}`));
const BAR = "mjx-c2223";
const SLASH = "mjx-c2F";
const SLICE = 5; // formulas that are set before the page looks up: some 50 milliseconds on a phone
const ready = new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
let left = []; // formulas that are not set yet, in the order of the page

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

/* Set the first few of those that are left, and let them break. */
async function setSome(count) {
  const some = left.splice(0, count);
  await MathJax.typesetPromise(some);
  finish(some);
}

function finish(formulas) {
  for (const formula of formulas.filter((each) => each.matches("span"))) {
    allowBreaks(formula);
    keepPunctuation(formula);
  }
}

/* How many stand above the lower edge of the window, wherever the address leads. */
function toBeginWith() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const end = innerHeight + Math.max(0, target?.getBoundingClientRect().top ?? 0);
  const isSeen = (formula) => formula.checkVisibility() && formula.getBoundingClientRect().top < end;
  return left.findLastIndex(isSeen) + 1;
}

async function setAll() {
  left = [...document.querySelectorAll(".math")];
  await setSome(toBeginWith());
  await ready;
  while (left.length) {
    await new Promise((resolve) => setTimeout(resolve));
    await setSome(SLICE);
  }
  letKeysSlideSoon();
}

/* Paper waits for nothing. */
addEventListener("beforeprint", () => {
  const rest = left.splice(0);
  if (!rest.length) return;
  MathJax.typeset(rest);
  finish(rest);
});

window.MathJax.startup = { pageReady: setAll };
