// One run: what it is, the tree that it belongs to, and its events as they happen.

import { follow, get, post } from "/console/api.js";
import { ago, badge, confirmed, h, runLink, shortId, toast } from "/console/dom.js";
import { Timeline } from "/console/timeline.js";

const EVERY_MS = 2000;
const TREE_LIMIT = 500;

export function run(main, signal, id) {
  const facts = h("section", { class: "card", "aria-label": "About this run" });
  const tree = h("section", { class: "card", "aria-label": "Run tree" });
  const streamState = h("span", { class: "note", role: "status" });
  const timeline = new Timeline();
  const controls = commands(id, refresh);
  main.append(
    h("div", { class: "head" }, h("h1", {}, "Run ", h("span", { class: "id" }, id)), streamState),
    h("div", { class: "run" },
      h("div", { class: "side" }, facts, tree),
      h("div", {}, timeline.element, controls.element)),
  );

  let known = null;
  async function refresh() {
    try {
      known = await get(`/v1/runs/${encodeURIComponent(id)}`, {}, signal);
      showFacts(facts, known);
      controls.update(known);
      const family = await get("/v1/runs", { root_run_id: known.root_run_id, limit: TREE_LIMIT }, signal);
      showTree(tree, family.runs, known, family.next_cursor !== null);
      if (timeline.lacksPrompts()) {
        const transcript = await get(`/v1/sessions/${encodeURIComponent(known.session_id)}/transcript`, { limit: TREE_LIMIT }, signal);
        timeline.addPrompts(transcript.messages);
      }
    } catch (error) {
      if (!signal.aborted) streamState.textContent = error.message;
    }
  }

  const said = { live: "live", reconnecting: "connection lost, trying again", ended: "ended" };
  refresh();
  const timer = setInterval(() => { if (!document.hidden && !final(known)) refresh(); }, EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  const onEvent = (name, data) => {
    timeline.add(name, data);
    if (["started", "awaiting_input", "done", "spawn_child_started", "spawn_child_result"].includes(name)) refresh();
  };
  follow(id, onEvent, (state) => { streamState.textContent = said[state]; }, signal)
    .catch((error) => { if (!signal.aborted) streamState.textContent = error.message; });
}

const final = (view) => ["completed", "failed", "closed"].includes(view?.state);

function showFacts(card, view) {
  const pair = (name, value) => [h("dt", {}, name), h("dd", {}, value ?? "–")];
  card.replaceChildren(
    h("div", { class: "row" }, badge(view.state), h("strong", { class: "grow" }, view.agent)),
    h("dl", {},
      pair("Session", h("span", { class: "id" }, shortId(view.session_id))),
      pair("Tenant", view.tenant_id),
      pair("User", view.user_id),
      pair("Resident", view.resident ? (view.resident_state ?? "yes") : "no"),
      pair("Replica", view.owner_replica ? shortId(view.owner_replica) : "none: nobody needs to hold it"),
      pair("Epoch", String(view.epoch)),
      pair("Turns", String(view.turns)),
      pair("Tokens", `${view.usage.input_tokens} in, ${view.usage.output_tokens} out`),
      pair("Created", ago(view.created_at)),
      pair("Last used", ago(view.last_used_at)),
      pair("Trace", view.trace_id ? h("span", { class: "id" }, view.trace_id) : null),
      Object.entries(view.metadata ?? {}).map(([name, value]) =>
        pair(name, typeof value === "string" ? value : JSON.stringify(value)))),
  );
}

/** Runs of one tree below each other; the order within a parent is that of their creation. */
function showTree(card, runs, current, cut) {
  const children = new Map();
  for (const view of [...runs].reverse()) {
    const parent = runs.some((other) => other.run_id === view.parent_run_id) ? view.parent_run_id : null;
    children.set(parent, [...(children.get(parent) ?? []), view]);
  }
  const branch = (parent) => (children.get(parent) ?? []).map((view) => {
    const below = branch(view.run_id);
    return h("li", {}, runLink(view.run_id, view.run_id === current.run_id), " ", view.agent, badge(view.state),
      below.length > 0 ? h("ul", {}, below) : null);
  });
  card.replaceChildren(
    h("h2", {}, "Run tree"),
    h("ul", { class: "tree" }, branch(null)),
    ...(cut ? [h("p", { class: "note" }, `Only the newest ${TREE_LIMIT} runs are shown.`)] : []),
  );
}

function commands(id, refresh) {
  const path = `/v1/runs/${encodeURIComponent(id)}`;
  const prompt = h("textarea", { rows: 3, "aria-label": "Prompt", placeholder: "What should it do next?" });
  const steer = h("input", { type: "checkbox" });
  const act = (command) => async (event) => {
    event?.preventDefault();
    try {
      await command();
      refresh();
    } catch (error) {
      toast(error.message, true);
    }
  };
  const send = act(async () => {
    const text = prompt.value;
    if (text === "") return;
    const answer = await post(`${path}/input`, { text, mode: steer.checked ? "steer" : "queue" });
    prompt.value = "";
    toast(answer.delivered === "now" ? "Delivered." : "Queued behind the turn that runs.");
  });
  const cancel = act(async () => {
    const answer = await post(`${path}/cancel`, { reason: "cancelled in the console" });
    toast(answer.stopped ? "The turn is cancelled." : "No turn was running.");
  });
  const close = act(async () => {
    const text = `${id}. It and all runs below it end for good. Their transcripts stay.`;
    if (!(await confirmed("Close this run?", text, "Close it"))) return;
    const answer = await post(`${path}/close`, { reason: "closed in the console" });
    toast(`Closed, with ${answer.closed_descendants} below it.`);
  });
  const sendButton = h("button", { type: "submit", class: "primary" }, "Send");
  const cancelButton = h("button", { type: "button", onclick: cancel }, "Cancel the turn");
  const closeButton = h("button", { type: "button", class: "danger", onclick: close }, "Close the run");
  const steerLabel = h("label", { class: "check" }, steer, "Steer the turn that runs");
  const element = h("form", { class: "card composer", onsubmit: send }, prompt,
    h("div", { class: "row" }, steerLabel, h("span", { class: "grow" }), closeButton, cancelButton, sendButton));
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event); });
  const update = (view) => {
    element.hidden = final(view);
    cancelButton.disabled = view.state !== "running";
    steerLabel.hidden = view.state !== "running";
  };
  return { element, update };
}
