/* Formulas inside a line, as a printed page sets them. MathJax 3 makes each of them one box, which
   no line can break: a long one would lose its right end on a phone, and the full stop behind one
   may begin a line. So a long formula may break after a relation, an operator or a slash at its top
   level, and punctuation stays with the formula that it touches. */
"use strict";

const LONG = 12; // signs; shorter formulas fit on any line
const TOP = ":is(mjx-math, mjx-math > mjx-mstyle)"; // \displaystyle makes a level of its own
const SPACED = `${TOP} > mjx-mo:is([space='3'], [space='4'])`; // as TeX spaces its operators
const SLASH = `${TOP} > mjx-texatom:has(> mjx-mo > mjx-c.mjx-c2F)`;

function allowBreaks(formula) {
  const math = formula.querySelector("mjx-math");
  if (!math || math.querySelectorAll("mjx-c").length <= LONG) return;
  for (const operator of formula.querySelectorAll(`${SPACED}, ${SLASH}`)) {
    operator.after(document.createElement("wbr"));
    formula.classList.add("breaks");
  }
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
});
