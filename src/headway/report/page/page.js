/* Curves, their legend and reading line. Texts of the user go through textContent only. */

(() => {
  const { make, shape, look, swatch, steps, decades, plain, place } = headway;
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const svg = at("chart"), tip = at("tip"), plot = at("plot");
  const AXES = {
    round: "communication round",
    sent: `${data.unit} sent, down and up`,
    time: `${data.clock} by the clock, training and evaluation`,
  };
  const EDGE = { left: 58, right: 18, top: 14, bottom: 44 };
  const state = { measure: data.measures[0]?.key, axis: "round", band: true, single: true, log: false, hidden: new Set(), chosen: null };
  let view = null; // what was drawn last: visible methods and both scales
  let reading = null; // the place on the horizontal axis that is read

  // ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────────

  const measure = () => data.measures.find((one) => one.key === state.measure);
  const logarithmic = () => state.log && !measure().share;

  // ── curves ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  function visible() {
    return data.methods.map((method, number) => {
      const curve = method.curves[state.measure];
      if (!curve || state.hidden.has(number)) return null;
      const grid = data.grids[curve.grid], x = state.axis === "time" ? method.time[curve.grid] : grid[state.axis];
      const std = state.band ? curve.std : null, seeds = state.single && curve.seeds ? curve.seeds : [];
      return { number, method, x, rounds: grid.round, mean: curve.mean, std, seeds };
    }).filter(Boolean);
  }

  function range(shown) {
    let low = Infinity, high = -Infinity, right = 0;
    const floor = logarithmic() ? 0 : -Infinity;
    for (const { x, mean, std, seeds } of shown) {
      right = Math.max(right, x[x.length - 1]);
      for (const value of seeds.flat()) {
        if (value === null || value <= floor) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
      mean.forEach((value, point) => {
        if (value === null) return;
        const spread = std ? std[point] : 0;
        if (value - spread > floor) low = Math.min(low, value - spread);
        if (value > floor) low = Math.min(low, value);
        high = Math.max(high, value + spread);
      });
    }
    if (measure().targeted && data.target !== null && shown.length) {
      low = Math.min(low, data.target);
      high = Math.max(high, data.target);
    }
    if (!(low <= high)) [low, high] = logarithmic() ? [0.1, 1] : [0, 1];
    if (logarithmic()) return { low: low / 1.1, high: high * 1.1, right: right || 1 };
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
    const [least, most] = measure().share ? [0, 100] : [low >= 0 ? 0 : -Infinity, Infinity];
    return { low: Math.max(low - room, least), high: Math.min(high + room, most), right: right || 1 };
  }

  function scales(shown) {
    const { width, height } = svg.getBoundingClientRect();
    const { low, high, right } = range(shown);
    const bend = logarithmic() ? Math.log : (value) => value;
    const across = Math.max(width - EDGE.left - EDGE.right, 10), down = Math.max(height - EDGE.top - EDGE.bottom, 10);
    const bottom = bend(low), whole = bend(high) - bottom || 1;
    return {
      width, height, low, high, right,
      x: (value) => EDGE.left + (value / right) * across,
      y: (value) => {
        const part = logarithmic() && value <= 0 ? 0 : (bend(value) - bottom) / whole;
        return EDGE.top + (1 - Math.min(Math.max(part, 0), 1)) * down;
      },
      back: (pixel) => ((pixel - EDGE.left) / across) * right,
    };
  }

  const pair = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

  function line(x, values, scale) {
    let path = "", pen = "M";
    values.forEach((value, point) => {
      if (value === null) { pen = "M"; return; }
      path += pen + pair(scale.x(x[point]), scale.y(value));
      pen = "L";
    });
    return path;
  }

  function band({ x, mean, std }, scale) {
    const known = mean.map((value, point) => point).filter((point) => mean[point] !== null);
    const upper = known.map((point) => pair(scale.x(x[point]), scale.y(mean[point] + std[point])));
    const lower = known.map((point) => pair(scale.x(x[point]), scale.y(mean[point] - std[point]))).reverse();
    return known.length ? `M${upper.concat(lower).join("L")}Z` : "";
  }

  function frame(scale) {
    const parts = [];
    const bottom = scale.height - EDGE.bottom, end = scale.width - EDGE.right;
    for (const value of logarithmic() ? decades(scale.low, scale.high) : steps(scale.low, scale.high, scale.height / 62)) {
      const y = scale.y(value);
      parts.push(shape("line", { class: "rule", x1: EDGE.left, x2: end, y1: y, y2: y }));
      parts.push(shape("text", { x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }, plain(value)));
    }
    parts.push(shape("line", { class: "base", x1: EDGE.left, x2: end, y1: bottom, y2: bottom }));
    for (const value of steps(0, scale.right, Math.max(scale.width / 110, 2), state.axis === "round" ? 1 : 0)) {
      parts.push(shape("text", { x: scale.x(value), y: bottom + 17, "text-anchor": "middle" }, plain(value)));
    }
    const middle = (EDGE.left + end) / 2;
    parts.push(shape("text", { x: middle, y: scale.height - 6, "text-anchor": "middle" }, AXES[state.axis]));
    const half = (EDGE.top + bottom) / 2;
    const turned = { transform: `rotate(-90 13 ${half})`, x: 13, y: half, "text-anchor": "middle" };
    parts.push(shape("text", turned, measure().label));
    if (measure().targeted && data.target !== null) {
      const y = scale.y(data.target);
      const written = measure().share ? `${plain(Number(data.target.toFixed(1)))} %` : plain(Number(data.target.toPrecision(4)));
      parts.push(shape("line", { class: "target", x1: EDGE.left, x2: end, y1: y, y2: y }));
      parts.push(shape("text", { x: EDGE.left + 6, y: y - 5 }, `target ${written}`));
    }
    return parts;
  }

  function draw() {
    if (!state.measure) return;
    const shown = visible(), scale = scales(shown);
    view = { shown, scale };
    svg.setAttribute("viewBox", `0 0 ${scale.width} ${scale.height}`);
    svg.classList.toggle("many", data.methods.length > 8);
    const bands = shown.filter((one) => one.std).map((one) => shape("path",
      { class: `spread ${look(one.number)}`, "data-number": one.number, d: band(one, scale) }));
    const drawn = (kind, one, values) => shape("path",
      { class: `${kind} ${look(one.number)}`, "data-number": one.number, d: line(one.x, values, scale) });
    const seeds = shown.flatMap((one) => one.seeds.map((values) => drawn("seed", one, values)));
    const lines = shown.map((one) => drawn("curve", one, one.mean));
    svg.replaceChildren(...frame(scale), ...bands, ...seeds, ...lines, shape("g", { id: "cursor" }));
    const several = data.methods.some((method) => method.curves[state.measure]?.std);
    at("band-label").hidden = at("single-label").hidden = !several;
    at("log-label").hidden = measure().share;
    emphasise();
    read();
  }

  /* The curve of the legend's entry under the pointer stands out. */
  function emphasise() {
    svg.classList.toggle("one", state.chosen !== null && !state.hidden.has(state.chosen));
    for (const path of svg.querySelectorAll("path")) path.classList.toggle("chosen", Number(path.dataset.number) === state.chosen);
  }

  // ── the reading line ───────────────────────────────────────────────────────────────────────────────────────────────

  function nearest(value) {
    let best = null;
    for (const { x } of view.shown) {
      const before = place(x, value);
      for (const point of [before, before + 1]) {
        if (x[point] !== undefined && (best === null || Math.abs(x[point] - value) < Math.abs(best - value))) best = x[point];
      }
    }
    return best;
  }

  /* Each method's last evaluation at or before the line; one that ended earlier says where. */
  function values() {
    const rows = view.shown.map((one) => {
      const point = place(one.x, reading);
      if (point < 0 || one.mean[point] === null) return { ...one, value: null };
      return { ...one, point, value: one.mean[point], spread: one.std ? one.std[point] : null };
    });
    const sign = measure().higher ? -1 : 1;
    return rows.sort((a, b) => (a.value === null) - (b.value === null) || sign * (a.value - b.value));
  }

  function read() {
    const cursor = at("cursor");
    if (reading === null || !view.shown.length) {
      cursor.replaceChildren();
      tip.hidden = true;
      return;
    }
    const { scale } = view, rows = values(), x = scale.x(reading), digits = measure().digits;
    const known = rows.filter((row) => row.value !== null);
    cursor.replaceChildren(
      shape("line", { class: "cross", x1: x, x2: x, y1: EDGE.top, y2: scale.height - EDGE.bottom }),
      ...known.map((row) => shape("circle",
        { class: `dot ${look(row.number)}`, r: 4, cx: scale.x(row.x[row.point]), cy: scale.y(row.value) })),
    );
    const body = make("tbody");
    for (const row of rows) {
      const name = make("td", {}, swatch(row.number), row.method.name);
      const value = make("td", { textContent: row.value === null ? "–" : row.value.toFixed(digits) });
      const spread = make("td", { className: "soft", textContent: row.spread != null ? `± ${row.spread.toFixed(digits)}` : "" });
      const late = row.value !== null && (state.axis !== "round" || row.rounds[row.point] !== reading);
      const where = make("td", { className: "soft", textContent: late ? `round ${plain(row.rounds[row.point])}` : "" });
      body.append(make("tr", {}, name, value, spread, where));
    }
    const unit = state.axis === "sent" ? data.unit : data.clock;
    const place = state.axis === "round" ? `round ${plain(reading)}` : `${plain(Number(reading.toPrecision(4)))} ${unit}`;
    tip.className = rows.length > 14 ? "many" : "";
    tip.replaceChildren(make("p", { textContent: `${place} · ${measure().short}` }), make("table", {}, body));
    tip.hidden = false;
    const room = plot.clientWidth - tip.offsetWidth;
    const right = x + 14, left = x - 14 - tip.offsetWidth;
    tip.style.left = `${right <= room ? right : Math.max(left, 0)}px`;
    const heights = known.map((row) => scale.y(row.value)); // the box keeps to the half in which fewer points are
    const below = heights.filter((y) => y > scale.height / 2).length * 2 <= heights.length;
    const lowest = scale.height - EDGE.bottom - tip.offsetHeight - 6;
    tip.style.top = `${below ? Math.max(lowest, 0) : 8}px`;
  }

  function pointed(event) {
    if (!view || !view.shown.length) return;
    reading = nearest(view.scale.back(event.clientX - svg.getBoundingClientRect().left));
    read();
  }

  function keyed(event) {
    const places = [...new Set(view.shown.flatMap((one) => one.x))].sort((a, b) => a - b);
    const now = reading === null ? -1 : place(places, reading);
    const wanted = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: places.length - 1 }[event.key];
    if (event.key === "Escape") reading = null;
    else if (wanted !== undefined && places.length) reading = places[Math.min(Math.max(wanted, 0), places.length - 1)];
    else return;
    event.preventDefault();
    read();
  }

  // ── switches and legend ────────────────────────────────────────────────────────────────────────────────────────────

  function choices(id, options) {
    for (const [value, label] of options) {
      const input = make("input", { type: "radio", name: id, value, checked: state[id] === value });
      input.addEventListener("change", () => { state[id] = value; reading = null; draw(); });
      at(id).append(make("label", {}, input, make("span", { textContent: label })));
    }
    at(id).hidden = options.length < 2;
  }

  function legend() {
    const buttons = data.methods.map((method, number) => {
      const button = make("button", { type: "button", title: method.note || method.name }, swatch(number), method.name);
      const choose = (chosen) => () => { state.chosen = chosen; emphasise(); };
      button.addEventListener("click", () => {
        if (!state.hidden.delete(number)) state.hidden.add(number);
        refresh();
      });
      button.addEventListener("pointerenter", choose(number));
      button.addEventListener("pointerleave", choose(null));
      return button;
    });
    const all = make("button", { type: "button", className: "all" });
    all.addEventListener("click", () => {
      const none = state.hidden.size > 0;
      state.hidden = new Set(none ? [] : data.methods.keys());
      refresh();
    });
    function refresh() {
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(!state.hidden.has(number))));
      all.textContent = state.hidden.size ? "show all" : "hide all";
      draw();
    }
    at("legend").append(...buttons, ...(buttons.length > 1 ? [all] : []));
    refresh();
  }

  /* A loss or a perplexity that falls far would be flat at its end on a linear axis. */
  function fallsFar() {
    const values = data.methods.flatMap((method) => method.curves[state.measure]?.mean ?? []).filter((value) => value !== null);
    const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, 0]);
    return !measure().higher && low > 0 && high > 50 * low;
  }

  // ── saving ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  /* The numbers behind what is drawn: a line for each visible method and evaluation, all axes, and every seed. */
  function saved() {
    const shown = view.shown, most = Math.max(0, ...shown.map((one) => one.method.seeds.length));
    const numbers = [...new Set(shown.flatMap((one) => one.method.seeds))].sort((a, b) => a - b);
    const head = ["method", "round", `${data.unit} sent`, `${data.clock} by the clock`, measure().label];
    if (most > 1) head.push("deviation", ...numbers.map((seed) => `seed ${seed}`));
    const rows = shown.flatMap(({ method, mean, rounds }) => {
      const curve = method.curves[state.measure], sent = data.grids[curve.grid].sent, time = method.time[curve.grid];
      return mean.map((value, point) => {
        const row = [method.name, rounds[point], sent[point], time[point], value];
        if (most < 2) return row;
        const each = numbers.map((seed) => {
          const place = method.seeds.indexOf(seed);
          return place < 0 ? null : (curve.seeds ?? [mean])[place][point];
        });
        return [...row, curve.std?.[point] ?? null, ...each];
      });
    });
    const title = `${measure().label} over ${AXES[state.axis]}`;
    const keys = shown.map(({ number, method }) => [number, method.name]);
    return { name: `curves-${state.measure}-${state.axis}`.replace(/[^\w-]+/g, "-"), title, sheet: { head, rows, keys } };
  }

  function curves() {
    if (!state.measure) return;
    state.log = at("log").checked = fallsFar();
    at("curves").hidden = false;
    choices("measure", data.measures.map((one) => [one.key, one.short]));
    choices("axis", [["round", "rounds"], ["sent", `${data.unit} sent`], ["time", "time"]]);
    state.single = at("single").checked = data.methods.length <= 8;
    for (const id of ["band", "single", "log"]) at(id).addEventListener("change", () => { state[id] = at(id).checked; draw(); });
    headway.savable(svg, at("curves-saved"), saved);
    legend();
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("pointerleave", () => { reading = null; read(); });
    svg.addEventListener("blur", () => { reading = null; read(); });
    svg.addEventListener("keydown", keyed);
    new ResizeObserver(() => {
      const { width, height } = svg.getBoundingClientRect();
      if (width !== view.scale.width || height !== view.scale.height) draw();
    }).observe(svg);
    window.addEventListener("beforeprint", draw);
  }

  curves();
})();
