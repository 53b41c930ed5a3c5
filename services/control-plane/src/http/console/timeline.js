// Events of a run, grouped by turn.

import { badge, clock, excerpt, h, runLink, shortId } from "/console/dom.js";

/** Events of one turn that are kept on the page. */
const MOST_EVENTS = 2000;

export class Timeline {
  constructor() {
    this.element = h("ol", { class: "timeline", "aria-label": "Events", "aria-live": "off" });
    this.turns = new Map();
    this.prompts = new Map();
    this.live = new Map();
  }

  add(name, data) {
    if (data.delta !== undefined) return this.addDelta(name, data);
    // A journaled event takes the place of the deltas before it.
    this.live.get(data.turn_id)?.remove();
    this.live.delete(data.turn_id);
    const turn = this.turn(data);
    const what = described(name, data);
    if (what !== null) this.append(turn, h("li", { class: `event ${css(name, data)}` }, label(name), h("div", { class: "what" }, what)));
    if (name === "started") this.showPrompt(data.turn_id);
    if (data.outcome) {
      turn.header.querySelector(".badge")?.remove();
      turn.header.prepend(badge(data.outcome));
    }
  }

  addDelta(name, data) {
    let line = this.live.get(data.turn_id);
    if (!line) {
      line = h("li", { class: `event live ${css(name, data)}` }, label(name), h("div", { class: "what" }, h("pre")));
      this.live.set(data.turn_id, line);
      this.append(this.turn(data), line);
    }
    line.querySelector("pre").append(data.delta);
  }

  append(turn, line) {
    const atEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 40;
    turn.list.append(line);
    if (turn.list.children.length > MOST_EVENTS) turn.list.firstElementChild.remove();
    // Who reads at the end stays at the end; who scrolled up is left alone.
    if (atEnd) window.scrollTo({ top: document.body.scrollHeight });
  }

  turn(data) {
    const id = data.turn_id ?? "run";
    if (!this.turns.has(id)) {
      const title = data.turn_id ? h("span", { class: "id", title: id }, shortId(id)) : h("span", {}, "The run");
      const header = h("header", {}, data.turn_id ? badge("running") : null, title, clock(data.at));
      const list = h("ol");
      const group = h("li", { class: "turn" }, header, list);
      // What belongs to no turn comes first, however late it is told.
      if (data.turn_id) this.element.append(group);
      else this.element.prepend(group);
      this.turns.set(id, { header, list });
    }
    return this.turns.get(id);
  }

  lacksPrompts() {
    return [...this.turns.keys()].some((id) => id !== "run" && !this.prompts.has(id));
  }

  addPrompts(messages) {
    for (const message of messages) {
      if (message.role === "user" && message.turn_id && !this.prompts.has(message.turn_id)) {
        this.prompts.set(message.turn_id, message.content);
        this.showPrompt(message.turn_id);
      }
    }
  }

  showPrompt(id) {
    const list = this.turns.get(id)?.list;
    if (!list || !this.prompts.has(id) || list.querySelector(".prompt")) return;
    list.prepend(h("li", { class: "event" }, label("prompt"), h("div", { class: "what prompt" }, text(this.prompts.get(id)))));
  }
}

const label = (name) => h("span", { class: "name" }, name.replaceAll("_", " "));

function css(name, data) {
  if (data.is_error || data.error) return "failed";
  return /^[a-z_]+$/.test(name) ? name : "";
}

function text(value) {
  return h("pre", {}, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

const brief = (value) => excerpt(typeof value === "string" ? value : JSON.stringify(value), 110);

/** Long things are folded away under their first words. */
function folded(summary, value) {
  return h("details", {}, h("summary", {}, summary), text(value));
}

function described(name, data) {
  switch (name) {
    case "started": return null;
    case "session": return `agent ${data.agent}${data.parent_run_id ? ", child of another run" : ""}`;
    case "text": case "thinking": case "steer": return text(data.text);
    case "tool_call": return folded(`${data.name} ${brief(data.arguments)}`, data.arguments);
    case "tool_result": return folded(`${data.is_error ? "refused or failed: " : ""}${brief(data.content)}`, data.content);
    case "usage": return `${data.input_tokens} tokens in, ${data.output_tokens} out`;
    case "spawn_child_started": return [`${data.agent} `, runLink(data.child_run_id)];
    case "spawn_child_result": return [runLink(data.child_run_id), " ", badge(data.state)];
    case "turn_cancelled": return data.reason ?? "cancelled";
    case "blocked": return folded(data.blocker?.tripped ?? "a guardrail tripped", data.blocker);
    case "awaiting_input": case "done": return ended(data);
    case "error": return data.error?.message ?? text(data);
    default: return folded(name, data);
  }
}

/** The output stands above already, unless the turn ended without a step of its own. */
function ended(data) {
  const state = data.state ? badge(data.state) : null;
  const cut = data.truncated ? " The output was cut at its bound." : "";
  if (data.error) return [state, h("p", {}, `${data.error.code}: ${data.error.message}${cut}`)];
  return [state, cut];
}
