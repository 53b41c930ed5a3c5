// The views that are lists: runs, residents, sandboxes, nodes, replicas.

import { get, post } from "/console/api.js";
import { ago, badge, confirmed, excerpt, h, replaceRows, runLink, shortId, toast } from "/console/dom.js";

const EVERY_MS = 2000;
const PAGE = 50;
const STATES = ["running", "awaiting_input", "completed", "failed", "closed"];

/** A list that is asked for again and again while it is shown. */
function liveList({ title, path, name, columns, row, filters, hint }) {
  return (main, signal) => {
    const note = h("span", { class: "note" });
    const body = h("tbody");
    const empty = h("p", { class: "empty", hidden: true }, hint);
    const moreButton = h("button", { type: "button", onclick: () => { pages += 1; refresh(); } }, "Show more");
    const more = h("p", { class: "more", hidden: true }, moreButton);
    const form = filters ? filters(() => { pages = 1; refresh(); }) : null;
    let pages = 1;
    let asked = 0;

    main.append(
      h("div", { class: "head" }, h("h1", {}, title), note),
      ...(form ? [form.element] : []),
      h("div", { class: "card scroll" },
        h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))), body),
        empty),
      more,
    );

    async function refresh() {
      const question = (asked += 1);
      try {
        const found = await pagesOf(path, name, { ...form?.values(), limit: PAGE }, pages, signal);
        // An answer that was overtaken by a newer question is not shown.
        if (question !== asked) return;
        replaceRows(body, found.rows.map((item) => row(item, refresh)));
        empty.hidden = found.rows.length > 0;
        more.hidden = !found.more;
        note.textContent = `as of ${new Date(found.asOf).toLocaleTimeString()}${found.partial ? " · incomplete: a store did not answer" : ""}`;
      } catch (error) {
        if (!signal.aborted) note.textContent = error.message;
      }
    }

    refresh();
    const timer = setInterval(() => { if (!document.hidden) refresh(); }, EVERY_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  };
}

async function pagesOf(path, name, parameters, pages, signal) {
  const found = { rows: [], partial: false };
  let cursor = null;
  for (let page = 0; page < pages; page += 1) {
    const answer = await get(path, { ...parameters, cursor }, signal);
    found.rows.push(...answer[name]);
    found.partial ||= answer.partial === true;
    found.asOf = answer.as_of;
    cursor = answer.next_cursor;
    if (!cursor) break;
  }
  found.more = cursor !== null;
  return found;
}

function runFilters(onChange) {
  const state = h("select", { onchange: onChange }, h("option", { value: "" }, "any"),
    STATES.map((name) => h("option", { value: name }, name.replace("_", " "))));
  const agent = h("input", { type: "search", placeholder: "any", onchange: onChange });
  const root = h("input", { type: "search", placeholder: "any", onchange: onChange });
  const element = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "State", state), h("label", {}, "Agent", agent), h("label", {}, "Root run", root));
  const values = () => ({ state: state.value, agent: agent.value.trim(), root_run_id: root.value.trim() });
  return { element, values };
}

const key = (id, ...cells) => h("tr", { "data-key": id }, cells);
const cell = (...children) => h("td", {}, children);
const number = (value) => h("td", { class: "number" }, String(value));

export const runs = liveList({
  title: "Runs",
  path: "/v1/runs",
  name: "runs",
  filters: runFilters,
  hint: "No run matches. Start one with “New run”.",
  columns: ["State", "Run", "Agent", "Parent", "Turns", "Last output", "Outcome", "Replica", "Last used"],
  row: (run) => key(run.run_id,
    cell(badge(run.state)),
    cell(runLink(run.run_id)),
    cell(run.agent),
    cell(run.parent_run_id ? runLink(run.parent_run_id) : "–"),
    number(run.turns),
    h("td", { class: "excerpt", title: excerpt(run.last_turn?.output, 600) }, excerpt(run.last_turn?.output)),
    cell(run.last_turn ? badge(run.last_turn.outcome) : "–"),
    cell(run.owner_replica ? h("span", { class: "id", title: run.owner_replica }, shortId(run.owner_replica)) : "–"),
    cell(ago(run.last_used_at))),
});

export const residents = liveList({
  title: "Residents",
  path: "/v1/_resident",
  name: "resident",
  filters: runFilters,
  hint: "No resident is alive.",
  columns: ["State", "Resident", "Agent", "Root run", "Turns", "Sandbox", "Replica", "Idle time", "Opened", "Last used", ""],
  row: (resident, refresh) => key(resident.child_run_id,
    cell(badge(resident.state)),
    cell(runLink(resident.child_run_id)),
    cell(resident.agent),
    cell(runLink(resident.root_run_id)),
    number(resident.turns),
    cell(resident.sandbox_session_id ? h("span", { class: "id", title: resident.sandbox_session_id }, shortId(resident.sandbox_session_id)) : "–"),
    cell(resident.owner_replica ? h("span", { class: "id", title: resident.owner_replica }, shortId(resident.owner_replica)) : "asleep"),
    cell(`${Math.round(resident.idle_ttl_seconds / 60)} min`),
    cell(ago(resident.opened_at)),
    cell(ago(resident.last_used_at)),
    cell(closeButton(`/v1/_resident/${encodeURIComponent(resident.child_run_id)}/close`, "resident", resident.child_run_id,
      "It and all runs below it end for good. Their transcripts stay.", refresh))),
});

export const sandboxes = liveList({
  title: "Sandbox sessions",
  path: "/v1/_sandboxes",
  name: "sandboxes",
  hint: "No sandbox session is open.",
  columns: ["Session", "Root run", "Workspace", "Level", "Runtime", "Network", "Node", "Running", "CPU time", "Memory, MiB", "Disk, MiB", "Processes", "Last used", "Ends when idle", ""],
  row: (sandbox, refresh) => key(sandbox.session_id,
    cell(h("span", { class: "id", title: sandbox.session_id }, shortId(sandbox.session_id))),
    cell(sandbox.root_run_id ? runLink(sandbox.root_run_id) : "–"),
    cell(sandbox.workspace ?? "–"),
    cell(sandbox.isolation),
    cell(sandbox.runtime),
    cell(sandbox.network),
    cell(shortId(sandbox.node)),
    number(sandbox.running),
    number(sandbox.usage ? `${sandbox.usage.cpu_seconds.toFixed(1)} s` : "–"),
    number(sandbox.usage ? Math.round(sandbox.usage.memory_bytes / 2 ** 20) : "–"),
    number(sandbox.usage?.disk_bytes != null ? Math.round(sandbox.usage.disk_bytes / 2 ** 20) : "–"),
    number(sandbox.usage ? sandbox.usage.processes : "–"),
    cell(ago(sandbox.last_used_at)),
    cell(ago(sandbox.idle_expires_at)),
    cell(closeButton(`/v1/_sandboxes/${encodeURIComponent(sandbox.session_id)}/close`, "sandbox session", sandbox.session_id,
      "Its processes end and files outside a durable workspace are gone.", refresh))),
});

const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);

/** Of all, how much is in use: in words, and as a bar. */
function share(used, all, text) {
  return h("td", { class: "number" }, text, h("meter", { min: 0, max: all || 1, value: used, "aria-label": text }));
}

export const nodes = liveList({
  title: "Sandbox nodes",
  path: "/v1/_nodes",
  name: "nodes",
  hint: "No sandbox node reports.",
  columns: ["Node", "State", "Sessions", "Ready", "Commands", "CPUs", "Memory, GiB", "Disk, GiB", "Levels", "Runtimes", "Images", "Workspaces", "Version", "Started", ""],
  row: (node, refresh) => key(node.node_id,
    cell(h("span", { class: "id", title: `${node.node_id} at ${node.url}` }, node.node_id.length > 16 ? shortId(node.node_id) : node.node_id)),
    cell(node.draining ? "draining" : "serving"),
    share(node.sessions, node.max_sessions, `${node.sessions} of ${node.max_sessions}`),
    number(node.pool),
    number(node.usage.execs),
    share(node.usage.cpus_used, node.usage.cpus, `${node.usage.cpus_used.toFixed(1)} of ${node.usage.cpus}`),
    share(node.usage.memory_used_bytes, node.usage.memory_bytes, `${gib(node.usage.memory_used_bytes)} of ${gib(node.usage.memory_bytes)}`),
    share(node.usage.disk_used_bytes, node.usage.disk_bytes, `${gib(node.usage.disk_used_bytes)} of ${gib(node.usage.disk_bytes)}`),
    cell(node.levels.join(", ")),
    cell(node.runtimes.join(", ") || "–"),
    cell(h("span", { title: node.images.join("\n") || node.image }, node.images.length > 1 ? `${node.image} and ${node.images.length - 1} more` : node.image)),
    cell(h("span", { title: node.store ?? "" }, node.workspaces ? "kept" : "none")),
    cell(node.version),
    cell(ago(node.started_at)),
    cell(node.draining ? "" : drainButton(node, refresh))),
});

function drainButton(node, refresh) {
  const drain = async () => {
    const consequence = "It takes no new sessions. Those that it has go on; the node ends after the last one.";
    if (!(await confirmed("Drain this node?", `${node.node_id}. ${consequence}`, "Drain it"))) return;
    try {
      await post(`/v1/_nodes/${encodeURIComponent(node.node_id)}/drain`);
      toast("The node drains.");
      refresh();
    } catch (error) {
      toast(error.message, true);
    }
  };
  return h("button", { type: "button", class: "danger small", "aria-label": `Drain node ${node.node_id}`, onclick: drain }, "Drain");
}

export const replicas = liveList({
  title: "Replicas",
  path: "/v1/_replicas",
  name: "replicas",
  hint: "No replica reports.",
  columns: ["Replica", "State", "Address", "Residents in memory", "Running turns", "Version", "Started"],
  row: (replica) => key(replica.replica_id,
    cell(h("span", { class: "id" }, replica.replica_id)),
    cell(replica.draining ? "draining" : "serving"),
    cell(replica.url ?? "–"),
    number(replica.active_residents),
    number(replica.running_turns),
    cell(replica.version),
    cell(ago(replica.started_at))),
});

function closeButton(path, what, id, consequence, refresh) {
  const close = async () => {
    if (!(await confirmed(`Close this ${what}?`, `${id}. ${consequence}`, "Close it"))) return;
    try {
      await post(path);
      toast(`The ${what} is closed.`);
      refresh();
    } catch (error) {
      toast(error.message, true);
    }
  };
  return h("button", { type: "button", class: "danger small", "aria-label": `Close ${what} ${id}`, onclick: close }, "Close");
}
