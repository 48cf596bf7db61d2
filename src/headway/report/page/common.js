"use strict";
/* What every page uses: elements, numbers on axes, sorted tables, copied commands. Texts go through textContent only. */

const headway = (() => {
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const shape = (name, attributes, text) => {
    const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const look = (number) => `c${number % 8} d${Math.floor(number / 8) % 4}`;
  const swatch = (number) => make("span", { className: `swatch ${look(number)}` });

  // ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────────

  function steps(low, high, wanted, least = 0) {
    const rough = Math.max((high - low) / wanted || 1, least);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((part) => part * power).find((one) => one >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.max(Math.floor(high / step + 1e-9) - first + 1, 0);
    return Array.from({ length: count }, (_, number) => Number(((first + number) * step).toPrecision(12)));
  }

  function decades(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const part of [1, 2, 5]) found.push(Number((part * 10 ** power).toPrecision(3)));
    }
    const inside = found.filter((one) => one >= low && one <= high);
    return inside.length > 9 ? inside.filter((one) => /^0*\.?0*1/.test(String(one)) || /e/.test(String(one))) : inside;
  }

  const plain = (value) => (Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(1).replace("+", "") : value.toLocaleString("en", { maximumSignificantDigits: 6 }));

  /* Of the last entry at or before `value`, its place; -1 where there is none. */
  function place(list, value) {
    let low = -1, high = list.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (list[middle] <= value) low = middle; else high = middle - 1;
    }
    return low;
  }

  // ── tables and commands ────────────────────────────────────────────────────────────────────────────────────────────

  /* A bound such as "30+" comes after every number, "–" comes last whichever way is sorted, the best is 0 from itself. */
  function weight(text) {
    if (text === "best") return 0;
    const value = parseFloat(text.replace(/,/g, "").replace("−", "-"));
    return Number.isNaN(value) ? null : value + (/^[\d.,]+\+/.test(text) ? 1e15 : 0);
  }

  function sorted(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      const down = head.dataset.first === "descending", words = column === 0 || head.dataset.kind === "words";
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const order = before ? (before === "ascending" ? "descending" : "ascending") : down ? "descending" : "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const key = (row) => row.cells[column].textContent.trim();
        const compare = (one, other) => {
          if (words) return sign * key(one).localeCompare(key(other), "en", { numeric: true });
          const [a, b] = [weight(key(one)), weight(key(other))];
          return a === null || b === null ? (a === null) - (b === null) : sign * (a - b);
        };
        body.append(...[...body.rows].sort(compare));
      });
    });
  }

  async function copied(button, block) {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(block);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }

  for (const block of document.querySelectorAll(".command pre")) {
    const button = make("button", { type: "button", className: "copy", textContent: "copy" });
    button.addEventListener("click", () => copied(button, block));
    block.after(button);
  }
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  window.addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
  document.querySelectorAll("table.sortable").forEach(sorted);

  /* A table that is wider than its window can be scrolled by the keyboard, and shows that it was. */
  for (const box of document.querySelectorAll(".wide")) {
    const fits = () => {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; else box.removeAttribute("tabindex");
    };
    box.addEventListener("scroll", () => box.classList.toggle("moved", box.scrollLeft > 0), { passive: true });
    fits();
    new ResizeObserver(fits).observe(box);
  }

  return { make, shape, look, swatch, steps, decades, plain, place };
})();
