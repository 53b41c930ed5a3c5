// Building the page. Data becomes text nodes and attributes, never markup.

/** Makes an element: `h("td", { class: "number" }, 7)`. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function badge(state) {
  return h("span", { class: `badge ${/^[a-z_]+$/.test(state) ? state : ""}` }, String(state).replace("_", " "));
}

/** The end of an id, which is where ids of one moment differ. */
export function shortId(id) {
  return id.length > 16 ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-8)}` : id;
}

export function runLink(id, current) {
  const attributes = { href: `#/runs/${encodeURIComponent(id)}`, class: "id", title: id };
  if (current) attributes["aria-current"] = "true";
  return h("a", attributes, shortId(id));
}

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });

export function ago(time) {
  if (!time) return "–";
  const seconds = Math.round((new Date(time).getTime() - Date.now()) / 1000);
  const steps = [["second", 60], ["minute", 60], ["hour", 24], ["day", Infinity]];
  let value = seconds;
  for (const [unit, size] of steps) {
    if (Math.abs(value) < size) return h("time", { datetime: time, title: time }, relative.format(value, unit));
    value = Math.round(value / size);
  }
  return time;
}

export function clock(time) {
  return h("time", { datetime: time, title: time }, new Date(time).toLocaleTimeString());
}

export function excerpt(text, length = 160) {
  const line = String(text ?? "").replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length)}…` : line;
}

export function toast(text, bad = false) {
  const box = h("div", { class: bad ? "toast bad" : "toast" }, text);
  byId("toasts").append(box);
  setTimeout(() => box.remove(), bad ? 9000 : 4000);
}

/** Asks before something that cannot be taken back. */
export function confirmed(title, text, yes) {
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  const dialog = byId("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Puts rows in place without throwing away the focus or the selection of those that stay as they are. */
export function replaceRows(body, rows) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const next = rows.map((row) => {
    const old = known.get(row.dataset.key);
    return old && old.isEqualNode(row) ? old : row;
  });
  const focused = document.activeElement?.closest?.("tr")?.dataset.key;
  const place = focused && [...(known.get(focused)?.querySelectorAll("a, button") ?? [])].indexOf(document.activeElement);
  if (next.length !== body.children.length || next.some((row, index) => body.children[index] !== row)) {
    body.replaceChildren(...next);
  }
  if (focused && !body.contains(document.activeElement)) {
    next.find((row) => row.dataset.key === focused)?.querySelectorAll("a, button")[place]?.focus();
  }
}
