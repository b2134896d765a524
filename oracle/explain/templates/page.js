"use strict";

// Copying needs a script; without one the buttons stay hidden, and a click selects the command.
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}

// The value under the pointer, or where the arrow keys went, read from the table below the drawing.
for (const box of document.querySelectorAll("[data-heat]")) {
  const plot = box.querySelector(".plot");
  const cursor = box.querySelector(".cursor");
  const table = document.getElementById(box.dataset.heat);
  const readout = box.nextElementSibling.querySelector("output");
  const cell = Number(plot.dataset.cell);
  const top = Number(plot.dataset.top);
  const room = Number(plot.dataset.room);
  const names = [...table.tHead.rows[0].cells].slice(1).map((own) => own.textContent);
  const numPositions = table.tBodies[0].rows.length;
  let row = 0;
  let position = 0;

  const show = () => {
    cursor.setAttribute("x", position * cell);
    cursor.setAttribute("y", top + row * cell);
    cursor.setAttribute("visibility", "visible");
    const value = table.tBodies[0].rows[position].cells[row + 1].textContent;
    readout.textContent = `${names[row]}, position ${position}: ${value}`;
  };
  plot.addEventListener("pointermove", (event) => {
    const edge = plot.getBoundingClientRect();
    const newRow = Math.floor(((event.clientY - edge.top) * (plot.height.baseVal.value / edge.height) - top) / cell);
    const newPosition = Math.floor((event.clientX - edge.left) * (plot.width.baseVal.value / edge.width) / cell);
    if (newRow >= 0 && newRow < names.length && newPosition >= 0 && newPosition < numPositions) {
      row = newRow;
      position = newPosition;
      show();
    }
  });
  box.addEventListener("focus", show);
  box.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    row = Math.min(Math.max(row + move[0], 0), names.length - 1);
    position = Math.min(Math.max(position + move[1], 0), numPositions - 1);
    show();
    const left = position * cell;
    const seen = box.clientWidth - room - cell;
    if (left < box.scrollLeft || left > box.scrollLeft + seen) box.scrollLeft = left - seen / 2;
  });
}
