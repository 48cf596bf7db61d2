/* The picture of measured against printed, and the filters. Texts go through textContent only. */

(() => {
  const { make, shape, steps, decades, plain } = headway;
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const svg = at("chart"), tip = at("tip"), plot = at("plot"), form = at("filters");
  const EDGE = { left: 58, right: 18, top: 14, bottom: 44 };
  const FAMILIES = {
    accuracy: { short: "accuracy", axis: "accuracy, %", bands: [1, 3], unit: "points", digits: 2 },
    rounds: { short: "rounds to a target", axis: "rounds to a target", bands: [10, 30], unit: "%", digits: 1 },
  };
  const VIEWS = { beside: "measured", gap: "gap" };
  const COLOURS = { paper: "paper", method: "method", verdict: "verdict" };
  const SHAPES = ["M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z", "M-4.5-4.5H4.5V4.5H-4.5Z", "M0-5.6L5.4 4.4H-5.4Z", "M0-6L6 0L0 6L-6 0Z"];
  const VERDICTS = { within: 2, outside: 1, "one seed": 6, unknown: 3, "": 6 };
  const FIELDS = ["paper", "method", "data", "item", "verdict"];
  const rows = new Map([...document.querySelectorAll("tr[data-number]")].map((row) => [Number(row.dataset.number), row]));
  const drawable = data.cells.filter((cell) => cell.family && cell.measured !== null && cell.published !== null && !cell.published_is_bound);
  const families = Object.keys(FAMILIES).filter((name) => drawable.some((cell) => cell.family === name));
  const state = { family: families[0], view: "beside", colour: "paper" };
  let points = []; // what was drawn last: cells with their places
  let reading = -1;

  // ── filters ────────────────────────────────────────────────────────────────────────────────────────────────────────

  const asked = Object.fromEntries([...FIELDS, "plain"].map((field) => [field, form.querySelector(`[name="${field}"]`)]));
  const word = (cell, field) => (field === "verdict" ? cell.verdict || "none" : cell[field]);
  const chosen = (cell) => FIELDS.every((field) => !asked[field].value || word(cell, field) === asked[field].value)
    && !(asked.plain.checked && (cell.draw || cell.form));

  function options() {
    for (const field of FIELDS) {
      const names = [...new Set(data.cells.map((cell) => word(cell, field)))];
      if (field !== "item" && field !== "paper") names.sort();
      const select = asked[field], before = select.value;
      select.replaceChildren(make("option", { value: "", textContent: "all" }), ...names.map((name) => make("option", { value: name, textContent: name })));
      select.value = before;
    }
  }

  function filter() {
    const left = data.cells.filter(chosen), numbers = new Set(left.map((cell) => cell.number));
    for (const [number, row] of rows) row.hidden = !numbers.has(number);
    at("count").textContent = `${left.length} of ${data.cells.length} numbers`;
    reading = -1;
    draw();
  }

  // ── the picture ────────────────────────────────────────────────────────────────────────────────────────────────────

  const family = () => FAMILIES[state.family];
  const logarithmic = () => state.family === "rounds";
  const gap = (cell) => (logarithmic() ? 100 * (cell.measured / cell.published - 1) : cell.measured - cell.published);
  const value = (cell) => (state.view === "gap" ? gap(cell) : cell.measured);
  const spread = (cell) => (cell.std === null ? 0 : state.view === "gap" && logarithmic() ? 100 * cell.std / cell.published : cell.std);

  /* The number of a colour, and of a shape where there are more names than colours. */
  function looks() {
    const names = [...new Set(data.cells.map((cell) => cell[state.colour]))];
    if (state.colour === "method") names.sort();
    return new Map(names.map((name, number) => {
      const colour = state.colour === "verdict" ? VERDICTS[name] : number % 8;
      return [name, { colour, shape: state.colour === "verdict" ? 0 : Math.floor(number / 8) % SHAPES.length }];
    }));
  }

  function span(values, room) {
    const low = Math.min(...values), high = Math.max(...values);
    const more = (high - low) * room || Math.abs(high) * room || 1;
    return [low - more, high + more];
  }

  function scales(shown) {
    const { width, height } = svg.getBoundingClientRect();
    const bend = logarithmic() ? Math.log : (one) => one, straight = logarithmic() ? Math.exp : (one) => one;
    const ends = shown.length ? shown : [{ published: 1, measured: 2, std: null }];
    const printed = ends.map((cell) => bend(cell.published));
    const measured = ends.flatMap((cell) => (state.view === "gap"
      ? [value(cell) - spread(cell), value(cell) + spread(cell)] : [bend(cell.measured)]));
    let [left, right] = span(printed, 0.05), [low, high] = span(measured, 0.08);
    if (state.view === "beside") { left = low = Math.min(left, low); right = high = Math.max(right, high); }
    else { const most = Math.max(family().bands[1] * 1.2, Math.abs(low), Math.abs(high)); low = -most; high = most; }
    if (!logarithmic()) right = Math.min(right, 100);
    if (!logarithmic() && state.view === "beside") high = right;
    const across = Math.max(width - EDGE.left - EDGE.right, 10), down = Math.max(height - EDGE.top - EDGE.bottom, 10);
    const up = state.view === "gap" ? (one) => one : bend;
    return {
      width, height, low, high, left: straight(left), right: straight(right),
      bottom: state.view === "gap" ? low : straight(low), top: state.view === "gap" ? high : straight(high),
      x: (one) => EDGE.left + ((bend(one) - left) / (right - left)) * across,
      y: (one) => EDGE.top + (1 - (Math.min(Math.max(up(one), low), high) - low) / (high - low)) * down,
    };
  }

  const pair = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

  function bands(scale) {
    const parts = [], places = Array.from({ length: 81 }, (_, number) => (logarithmic()
      ? scale.left * (scale.right / scale.left) ** (number / 80) : scale.left + (scale.right - scale.left) * (number / 80)));
    const beyond = (place, by) => (state.view === "gap" ? by : logarithmic() ? place * (1 + by / 100) : place + by);
    for (const by of [...family().bands].reverse()) {
      const upper = places.map((place) => pair(scale.x(place), scale.y(beyond(place, by))));
      const lower = places.map((place) => pair(scale.x(place), scale.y(beyond(place, -by)))).reverse();
      parts.push(shape("path", { class: "band", d: `M${upper.concat(lower).join("L")}Z` }));
    }
    const line = places.map((place) => pair(scale.x(place), scale.y(beyond(place, 0))));
    parts.push(shape("path", { class: "diagonal", fill: "none", d: `M${line.join("L")}` }));
    return parts;
  }

  function frame(scale) {
    const parts = [], bottom = scale.height - EDGE.bottom, end = scale.width - EDGE.right;
    const ticks = (low, high, wanted, bent) => (bent && high > 12 * low ? decades(low, high) : steps(low, high, wanted));
    for (const tick of ticks(scale.bottom, scale.top, scale.height / 62, logarithmic() && state.view === "beside")) {
      const y = scale.y(tick);
      parts.push(shape("line", { class: "rule", x1: EDGE.left, x2: end, y1: y, y2: y }));
      parts.push(shape("text", { x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }, plain(tick)));
    }
    parts.push(shape("line", { class: "base", x1: EDGE.left, x2: end, y1: bottom, y2: bottom }));
    for (const tick of ticks(scale.left, scale.right, Math.max(scale.width / 110, 2), logarithmic())) {
      parts.push(shape("text", { x: scale.x(tick), y: bottom + 17, "text-anchor": "middle" }, plain(tick)));
    }
    const middle = (EDGE.left + end) / 2, half = (EDGE.top + bottom) / 2;
    parts.push(shape("text", { x: middle, y: scale.height - 6, "text-anchor": "middle" }, `printed ${family().axis}`));
    const turned = { transform: `rotate(-90 13 ${half})`, x: 13, y: half, "text-anchor": "middle" };
    const upright = state.view === "gap" ? `measured − printed, ${family().unit}` : `measured ${family().axis}`;
    parts.push(shape("text", turned, upright));
    return parts;
  }

  function draw() {
    if (!families.length) return;
    const shown = drawable.filter((cell) => cell.family === state.family && chosen(cell));
    const scale = scales(shown), of = looks();
    svg.setAttribute("viewBox", `0 0 ${scale.width} ${scale.height}`);
    points = shown.map((cell) => ({ cell, x: scale.x(cell.published), y: scale.y(value(cell)) })).sort((a, b) => a.x - b.x || a.y - b.y);
    const errors = points.filter(({ cell }) => cell.std).map(({ cell, x }) => shape("path", {
      class: `spread c${of.get(cell[state.colour]).colour}`,
      d: `M${pair(x, scale.y(value(cell) - spread(cell)))}L${pair(x, scale.y(value(cell) + spread(cell)))}`,
    }));
    const marks = points.map(({ cell, x, y }) => shape("path", {
      class: `point c${of.get(cell[state.colour]).colour}${cell.draw || cell.form ? " hollow" : ""}`,
      "data-number": cell.number, transform: `translate(${pair(x, y)})`, d: SHAPES[of.get(cell[state.colour]).shape],
    }));
    svg.replaceChildren(...bands(scale), ...frame(scale), ...errors, ...marks);
    if (!points.length) svg.append(shape("text", { x: scale.width / 2, y: scale.height / 2, "text-anchor": "middle" }, "no such number was measured"));
    legend(of, shown);
    const [inner, outer] = family().bands, unit = family().unit;
    at("about-picture").textContent = `Bands: ±${inner} and ±${outer} ${unit}. Hollow: another split, other cohorts or another form of the method (†, §). `
      + "Lines: ± one deviation over seeds. The pointer or the arrow keys read a point; a click or Enter goes to its line.";
    read();
  }

  function legend(of, shown) {
    const there = new Set(shown.map((cell) => cell[state.colour]));
    at("legend").replaceChildren(...[...of].filter(([name]) => there.has(name)).map(([name, { colour, shape: form_ }]) => {
      const mark = shape("svg", { viewBox: "-6 -6 12 12", class: `c${colour}`, "aria-hidden": "true" });
      mark.append(shape("path", { d: SHAPES[form_] }));
      return make("span", {}, mark, name || "no verdict");
    }));
  }

  // ── reading a point ────────────────────────────────────────────────────────────────────────────────────────────────

  const signed = (one, digits) => `${one < 0 ? "−" : "+"}${Math.abs(one).toFixed(digits)}`;

  function read() {
    for (const mark of svg.querySelectorAll(".point.read")) mark.classList.remove("read");
    const point = points[reading];
    tip.hidden = !point;
    if (!point) return;
    const { cell, x, y } = point, counts = cell.family === "rounds";
    const digits = counts ? (cell.seeds > 1 ? 1 : 0) : 2;
    svg.querySelector(`[data-number="${cell.number}"]`).classList.add("read");
    const lines = [
      ["measured", `${cell.measured.toFixed(digits)}${cell.std === null ? "" : ` ± ${cell.std.toFixed(digits)}`}`],
      ["printed", `${plain(cell.published)}${cell.published_std === null ? "" : ` ± ${cell.published_std}`}`],
      ["gap", counts ? `${signed(cell.measured - cell.published, digits)} (${signed(gap(cell), 0)} %)` : signed(gap(cell), 2)],
      ["seeds", String(cell.seeds)],
      ["verdict", cell.verdict],
      ["† draw", cell.draw], ["§ form", cell.form], ["‡ ended", cell.ended_early],
    ].filter(([, text]) => text);
    const body = make("tbody", {}, ...lines.map(([name, text]) => make("tr", {}, make("td", { textContent: name }), make("td", { textContent: text }))));
    tip.replaceChildren(make("p", { textContent: `${cell.row} · ${cell.heading}` }), make("table", {}, make("tbody", {},
      make("tr", {}, make("td", { textContent: "of" }), make("td", { textContent: cell.item })),
      make("tr", {}, make("td", { textContent: "on" }), make("td", { textContent: cell.column })), ...body.children)));
    const room = plot.clientWidth - tip.offsetWidth;
    tip.style.left = `${x + 16 <= room ? x + 16 : Math.max(x - 16 - tip.offsetWidth, 0)}px`;
    tip.style.top = `${Math.max(Math.min(y - 20, plot.clientHeight - tip.offsetHeight - 4), 4)}px`;
  }

  function pointed(event) {
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const far = points.map((point) => Math.hypot(point.x - x, point.y - y));
    const least = Math.min(...far);
    reading = least <= 28 ? far.indexOf(least) : -1;
    read();
  }

  /* Shows the line of the point that is read. */
  function go() {
    const row = points[reading] && rows.get(points[reading].cell.number);
    if (!row) return;
    for (const other of document.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    row.classList.add("chosen");
    row.tabIndex = -1;
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
  }

  function keyed(event) {
    const last = points.length - 1;
    const wanted = { ArrowRight: reading + 1, ArrowLeft: reading < 0 ? last : reading - 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter") go();
    else if (event.key === "Escape") reading = -1;
    else if (wanted !== undefined && points.length) reading = Math.min(Math.max(wanted, 0), last);
    else return;
    event.preventDefault();
    if (event.key !== "Enter") read();
  }

  function choices(id, pairs) {
    for (const [key, label] of pairs) {
      const input = make("input", { type: "radio", name: id, value: key, checked: state[id] === key });
      input.addEventListener("change", () => { state[id] = key; reading = -1; draw(); });
      at(id).append(make("label", {}, input, make("span", { textContent: label })));
    }
    at(id).hidden = pairs.length < 2;
  }

  form.hidden = false;
  options();
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  if (families.length) {
    at("scatter").hidden = false;
    choices("family", families.map((name) => [name, FAMILIES[name].short]));
    choices("view", Object.entries(VIEWS));
    choices("colour", Object.entries(COLOURS));
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("click", go);
    svg.addEventListener("pointerleave", () => { reading = -1; read(); });
    svg.addEventListener("blur", () => { reading = -1; read(); });
    svg.addEventListener("keydown", keyed);
    new ResizeObserver(draw).observe(svg);
  }
  filter();
})();
