// The frame of the console: views, the token, health.

import { get, post, token, whenUnauthenticated } from "/console/api.js";
import { byId, h, toast } from "/console/dom.js";
import * as lists from "/console/lists.js";
import { run } from "/console/run.js";

const HEALTH_EVERY_MS = 5000;
let shown = new AbortController();

function show() {
  // Whatever the last view was waiting for is given up.
  shown.abort();
  shown = new AbortController();
  const [view = "runs", id] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = byId("main");
  main.replaceChildren();
  if (view === "runs" && id) run(main, shown.signal, decodeURIComponent(id));
  else if (Object.hasOwn(views, view)) views[view](main, shown.signal);
  else main.append(h("p", { class: "empty" }, "There is no such view."));
  main.focus({ preventScroll: true });
}

const views = { runs: lists.runs, residents: lists.residents, sandboxes: lists.sandboxes, nodes: lists.nodes, replicas: lists.replicas };

async function health() {
  const box = byId("health");
  // A probe that says no is an answer too.
  const answer = await fetch("/healthz", { cache: "no-store" }).then((response) => response.json(), () => null);
  box.classList.toggle("good", answer?.ok === true);
  box.classList.toggle("bad", answer?.ok !== true);
  const text = answer === null ? "not reachable" : answer.ok ? "serving" : "not ready";
  if (byId("health-text").textContent !== text) byId("health-text").textContent = text;
}

function signIn() {
  const dialog = byId("sign-in");
  if (dialog.open) return;
  byId("sign-in-problem").hidden = token.get() === null;
  byId("sign-in-problem").textContent = "That token is not known here.";
  token.forget();
  byId("token").value = "";
  dialog.showModal();
}

byId("sign-in").addEventListener("submit", () => {
  token.set(byId("token").value.trim());
  byId("sign-out").hidden = false;
  show();
});
// Without a token there is nothing to see behind the dialog.
byId("sign-in").addEventListener("cancel", (event) => event.preventDefault());

byId("sign-out").addEventListener("click", () => {
  token.forget();
  byId("sign-out").hidden = true;
  show();
});

async function compose() {
  const dialog = byId("compose");
  byId("compose-problem").hidden = true;
  try {
    const { agents } = await get("/v1/agents", { limit: 500 });
    byId("compose-agent").replaceChildren(...agents.map((agent) => h("option", { value: agent.name }, agent.name)));
    dialog.showModal();
    byId("compose-prompt").focus();
  } catch (error) {
    toast(error.message, true);
  }
}

byId("new-run").addEventListener("click", compose);
byId("compose").querySelector("[data-cancel]").addEventListener("click", () => byId("compose").close());
byId("compose").addEventListener("submit", async (event) => {
  event.preventDefault();
  const agent = byId("compose-agent").value;
  const prompt = byId("compose-prompt").value;
  try {
    // The shortest wait: what happens is seen in the stream.
    const answer = byId("compose-resident").checked
      ? await post("/v1/_resident", { agent, prompt, timeout_ms: 1 })
      : await post("/v1/runs", { agent, prompt, wait_ms: 1 });
    byId("compose-prompt").value = "";
    byId("compose").close();
    location.hash = `#/runs/${encodeURIComponent(answer.run_id)}`;
  } catch (error) {
    byId("compose-problem").textContent = error.message;
    byId("compose-problem").hidden = false;
  }
});

whenUnauthenticated(signIn);
window.addEventListener("hashchange", show);
byId("sign-out").hidden = token.get() === null;
show();
health();
setInterval(() => { if (!document.hidden) health(); }, HEALTH_EVERY_MS);
