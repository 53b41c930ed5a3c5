// Calls of the HTTP interface.

const KEPT = "hearth-token";

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the replica answered ${status}`);
    this.status = status;
    this.code = error?.code;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  forget: () => sessionStorage.removeItem(KEPT),
};

let onUnauthenticated = () => {};

/** Is called when a call needs a token that is not there. */
export function whenUnauthenticated(handler) {
  onUnauthenticated = handler;
}

function headers(more = {}) {
  const kept = token.get();
  return kept ? { Authorization: `Bearer ${kept}`, ...more } : more;
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const refused = new Refused(response.status, body?.error);
  if (response.status === 401) onUnauthenticated();
  throw refused;
}

export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  const address = query.size > 0 ? `${path}?${query}` : path;
  return (await checked(await fetch(address, { headers: headers(), signal, cache: "no-store" }))).json();
}

/** A command with a key of its own, so that a repeat by the browser has one effect. */
export async function post(path, body = {}) {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const more = { "Content-Type": "application/json", "Idempotency-Key": key };
  const response = await fetch(path, { method: "POST", headers: headers(more), body: JSON.stringify(body) });
  return (await checked(response)).json();
}

/**
 * The events of a run, from the first on, until it is final or the signal is aborted. A stream that
 * breaks is taken up after the last event that was seen.
 */
export async function follow(run, onEvent, onState, signal) {
  let last = 0;
  let pause = 500;
  while (!signal.aborted) {
    try {
      const more = last > 0 ? { Accept: "text/event-stream", "Last-Event-ID": String(last) } : { Accept: "text/event-stream" };
      const path = `/v1/runs/${encodeURIComponent(run)}/stream`;
      const response = await checked(await fetch(path, { headers: headers(more), signal, cache: "no-store" }));
      onState("live");
      pause = 500;
      for await (const event of frames(response.body)) {
        if (event.id) last = Number(event.id);
        onEvent(event.name, event.data);
        if (event.name === "done") return onState("ended");
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
    }
    onState("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 10_000);
  }
}

/** Server-sent events out of a body. EventSource cannot send a token. */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const frame = { name: "message", data: null };
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("id: ")) frame.id = line.slice(4);
        else if (line.startsWith("event: ")) frame.name = line.slice(7);
        else if (line.startsWith("data: ")) frame.data = JSON.parse(line.slice(6));
      }
      rest = rest.slice(end + 2);
      if (frame.data) yield frame;
    }
  }
}
