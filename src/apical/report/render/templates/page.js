"use strict";
(() => {
  const root = document.documentElement;
  const store = { get: () => { try { return localStorage.getItem("apical-theme"); } catch { return null; } },
    set: (v) => { try { localStorage.setItem("apical-theme", v); } catch { /* a page from a file may not keep it */ } } };
  if (store.get()) root.dataset.theme = store.get();
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set(root.dataset.theme);
  });

  const value = (row, column) => {
    const cell = row.cells[column];
    const holder = cell.dataset.sort !== undefined ? cell : cell.querySelector("[data-sort], [data-value]");
    const text = holder ? holder.dataset.sort ?? holder.dataset.value : cell.textContent.trim();
    const number = Number.parseFloat(text.replace("−", "-").replace("+", ""));
    return { number, text: text.toLowerCase() };
  };
  const compare = (a, b) => {
    const known = [Number.isFinite(a.number), Number.isFinite(b.number)];
    if (known[0] && known[1]) return a.number - b.number;
    if (known[0] !== known[1]) return known[0] ? -1 : 1;
    return a.text.localeCompare(b.text);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const bodies = [...table.tBodies];
    const original = bodies.map((body) => [...body.rows]);
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort || "none"];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      for (const row of original.flat()) if (row.classList.contains("group")) row.hidden = next !== "none";
      if (next === "none") { bodies.forEach((body, k) => body.append(...original[k])); return; }
      head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = original.flat().filter((row) => !row.classList.contains("group"));
      const keyed = rows.map((row) => ({ row, key: value(row, column) }));
      const empty = (k) => k.text === "–" || k.text === "";
      keyed.sort((a, b) => empty(a.key) - empty(b.key) || sign * compare(a.key, b.key));
      bodies[0].append(...keyed.map(({ row }) => row));
    }));
  }
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const holder = target && target.closest("details");
    if (holder) { holder.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", openTarget);
  openTarget();
})();
