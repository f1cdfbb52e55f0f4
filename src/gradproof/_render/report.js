"use strict";
// Without this script the page is complete but for what an entry says when it is pointed at.
const KEYS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function say(figure, text) {
  figure.querySelector(".readout").textContent = text;
}

for (const figure of document.querySelectorAll("figure.maps")) {
  const told = JSON.parse(figure.querySelector("script").textContent);
  const grids = [...figure.querySelectorAll("table")].map((table) =>
    [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("td")]));
  const show = (i, j) => {
    say(figure, told[i][j]);
    for (const cell of figure.querySelectorAll(".same")) cell.classList.remove("same");
    for (const grid of grids) grid[i][j].classList.add("same");
  };
  for (const grid of grids) {
    grid.forEach((row, i) => row.forEach((cell, j) => {
      cell.tabIndex = i || j ? -1 : 0; // one stop per table; the arrows do the rest
      cell.setAttribute("aria-description", told[i][j]);
      cell.addEventListener("mouseenter", () => show(i, j));
      cell.addEventListener("focus", () => show(i, j));
      cell.addEventListener("click", () => cell.focus());
      cell.addEventListener("keydown", (event) => {
        const ends = { Home: [i, 0], End: [i, row.length - 1] };
        const [a, b] = ends[event.key] || (KEYS[event.key] || []).map((d, k) => d + [i, j][k]);
        const next = grid[a] && grid[a][b];
        if (!next) return;
        event.preventDefault();
        cell.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      });
    }));
  }
}

for (const figure of document.querySelectorAll("figure.curve")) {
  const points = [...figure.querySelectorAll(".point")];
  points.forEach((point, place) => {
    const show = () => say(figure, point.getAttribute("aria-label"));
    point.addEventListener("mouseenter", show);
    point.addEventListener("focus", show);
    point.addEventListener("keydown", (event) => {
      const next = points[place + (KEYS[event.key] ? KEYS[event.key][0] + KEYS[event.key][1] : 0)];
      if (!next || next === point) return;
      event.preventDefault();
      point.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
}

function copied(button) {
  document.getElementById("said").textContent = "Copied";
  const [word] = button.childNodes;
  word.data = "Copied";
  setTimeout(() => { word.data = "Copy"; }, 1500);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch { // no permission: select it, and let the browser copy what is selected
      getSelection().selectAllChildren(button.previousElementSibling);
      document.execCommand("copy");
    }
    copied(button);
  });
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
