/* A figure of several panels is too wide for a phone: shrunk to its width, the labels are too small
   to read. Such images are marked here, and custom.css lets them slide sideways in their figure. */
"use strict";

const PANELS = 720; // pixels of the drawing itself; one panel is narrower, two are wider

document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll("figure img")) {
    const mark = () => image.classList.toggle("wide", image.naturalWidth > PANELS);
    image.complete ? mark() : image.addEventListener("load", mark);
  }
});
