/* Buttons that save a chart as SVG and its numbers as CSV, from the page itself: nothing is asked of a server. */

headway.savable = (() => {
  const { make, shape, look } = headway;
  const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
    "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
  const PLAIN = new Map([["fill-opacity", "1"], ["stroke", "none"], ["stroke-opacity", "1"], ["stroke-dasharray", "none"],
    ["stroke-linecap", "butt"], ["stroke-linejoin", "miter"], ["opacity", "1"], ["font-weight", "400"], ["text-anchor", "start"]]);
  const FONT = 12, ROW = 20, LINE = 26;

  function save(name, text, type) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // ── CSV ────────────────────────────────────────────────────────────────────────────────────────────────────────────

  const field = (value) => (/[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replace(/"/g, '""')}"` : String(value ?? ""));
  const csv = ({ head, rows }) => [head, ...rows].map((row) => `${row.map(field).join(",")}\n`).join("");

  // ── SVG ────────────────────────────────────────────────────────────────────────────────────────────────────────────

  /* Every look that the page's style gives, written into the elements: a file has no style of ours. */
  function dressed(from, to) {
    const style = getComputedStyle(from), words = from.tagName === "text";
    for (const name of DRAWN) {
      if (/^(font|text)/.test(name) && !words) continue;
      const value = style.getPropertyValue(name);
      if (value && value !== PLAIN.get(name)) to.setAttribute(name, value);
    }
    to.removeAttribute("class");
    for (const { name } of [...to.attributes]) if (name.startsWith("data-")) to.removeAttribute(name);
  }

  /* The names of the methods below the picture, in as many rows as they need. */
  function named(keys, width, top) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `${FONT}px sans-serif`;
    const parts = shape("g", {});
    let x = 10, y = top + ROW / 2;
    for (const [number, name] of keys) {
      const wide = LINE + 8 + pen.measureText(name).width + 18;
      if (x > 10 && x + wide > width) [x, y] = [10, y + ROW];
      parts.append(shape("line", { class: `key ${look(number)}`, x1: x, x2: x + LINE, y1: y, y2: y }));
      parts.append(shape("text", { class: "name", x: x + LINE + 8, y: y + 4 }, name));
      x += wide;
    }
    return { parts, bottom: y + ROW / 2 + 4 };
  }

  function picture(svg, keys, title, above) {
    const root = document.documentElement, copy = svg.cloneNode(true);
    copy.querySelector("#cursor")?.remove();
    const [left, start, width, tall] = svg.getAttribute("viewBox").split(/[ ,]+/).map(Number);
    const foot = named(keys, width, start + tall), lines = above ? above.split("\n") : [];
    const top = start - ROW * lines.length;
    const whole = (keys.length ? foot.bottom : start + tall) - top;
    lines.forEach((words, at) => foot.parts.append(shape("text", { class: "name", x: left + 10, y: top + ROW * at + 15 }, words)));
    root.classList.add("light"); // files are for papers: colours on white, whatever the page shows
    svg.append(foot.parts);
    const from = [...svg.querySelectorAll("*")].filter((one) => !one.closest("#cursor"));
    copy.append(foot.parts.cloneNode(true));
    const to = [...copy.querySelectorAll("*")];
    const drawing = svg.classList.contains("picture"); // its looks are in its elements already
    if (drawing) copy.style.strokeLinejoin = "round";
    else from.forEach((element, number) => dressed(element, to[number]));
    foot.parts.remove();
    for (const name of ["class", "tabindex", "role", "id", "aria-label"]) copy.removeAttribute(name);
    const size = { width, height: whole, viewBox: `${left} ${top} ${width} ${whole}` };
    for (const [name, value] of Object.entries(size)) copy.setAttribute(name, value);
    copy.style.color = "#1c2430"; // what drawings call the colour of the page's text
    copy.prepend(shape("title", {}, title), shape("rect", { x: left, y: top, width, height: whole, fill: "#ffffff" }));
    root.classList.remove("light");
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
  }

  /* `about` gives, when a button is pressed, the file's name, its title, the words above the picture and its numbers. */
  function savable(svg, place, about, hasNumbers = true) {
    const button = (kind, act) => {
      const made = make("button", { type: "button", className: "save", textContent: kind, title: `save as ${kind}` });
      made.addEventListener("click", act);
      return made;
    };
    const buttons = [button("SVG", () => {
      const { name, title, above, sheet } = about();
      save(`${name}.svg`, picture(svg, sheet?.keys ?? [], title, above), "image/svg+xml");
    })];
    if (hasNumbers) {
      buttons.push(button("CSV", () => {
        const { name, sheet } = about();
        save(`${name}.csv`, csv(sheet), "text/csv");
      }));
    }
    place.append(make("p", { className: "saving" }, make("span", { textContent: "save" }), ...buttons));
  }

  const sheets = JSON.parse(document.getElementById("data").textContent).sheets ?? {};
  for (const figure of document.querySelectorAll("figure.saved")) {
    const svg = figure.querySelector("svg"), name = figure.dataset.name, sheet = sheets[name];
    const title = svg.getAttribute("aria-label") ?? name;
    savable(svg, figure, () => ({ name, title, above: figure.dataset.title, sheet }), Boolean(sheet));
  }
  return savable;
})();
