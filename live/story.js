/* The story of the landing page: a touch on a word shows what two readers expected at its place.
   `box` is the figure; `data.words` are the words that can be touched, `data.guesses` the five
   likeliest words of each reader there, `data.says` a sentence about each. Without this script the
   figure stands at the last word. */
const words = [...box.querySelectorAll("button")];
const readers = [...box.querySelectorAll("ol")].map((list) => [...list.children]);
const says = box.querySelector("[aria-live]");

function show(at) {
  words.forEach((word, i) => {
    word.ariaChecked = i === at;
    word.tabIndex = i === at ? 0 : -1; // one stop of the Tab key; the arrows do the rest
    word.classList.toggle("later", i > at);
  });
  readers.forEach((rows, reader) =>
    rows.forEach((row, place) => {
      const [guess, percent] = data.guesses[at][reader][place];
      const [name, bar, share] = row.children;
      name.textContent = guess;
      bar.style.width = `${percent}%`;
      share.textContent = `${percent} %`;
      row.classList.toggle("came", guess === data.words[at]);
    }),
  );
  says.textContent = data.says[at];
}

words.forEach((word, i) => {
  word.disabled = false;
  word.addEventListener("click", () => show(i));
});

box.querySelector("[role=radiogroup]").addEventListener("keydown", (event) => {
  const at = words.indexOf(event.target);
  const last = words.length - 1;
  const places = {
    ArrowRight: Math.min(last, at + 1),
    ArrowDown: Math.min(last, at + 1),
    ArrowLeft: Math.max(0, at - 1),
    ArrowUp: Math.max(0, at - 1),
    Home: 0,
    End: last,
  };
  if (!(event.key in places)) return;
  event.preventDefault();
  event.stopPropagation(); // the projector has the arrows, too
  show(places[event.key]);
  words[places[event.key]].focus();
});

show(words.length - 1);
