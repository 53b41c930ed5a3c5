// Drives one system with the job that all get: 300 sends of one caller to one entity, each awaited, then
// 64 callers with an entity each for five seconds; or, where all there is are commands, 40 times `true`. Prints
// one line of the table. What answers something else than it should ends it.
//
//   node drive.mjs SYSTEM LABEL ADDRESS
import { execFile } from "node:child_process";
import http from "node:http";
import { promisify } from "node:util";

const [system, label, address] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 128 });
const PROMPT = "what would you like to have for breakfast today?";

function post(path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${address}${path}`, { method: "POST", agent, headers }, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("error", reject);
      response.on("end", () => {
        const text = Buffer.concat(pieces).toString();
        if (response.statusCode < 300) resolve({ text, headers: response.headers });
        else reject(new Error(`${response.statusCode}: ${text.slice(0, 200)}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

function same(output) {
  if (output !== PROMPT) throw new Error(`it answered ${JSON.stringify(output)}`);
}

const json = { "content-type": "application/json" };
const bearer = { ...json, authorization: "Bearer peer-token" };

async function hearth() {
  const residents = new Map();
  return async (entity) => {
    if (!residents.has(entity)) {
      const opened = await post("/v1/_resident", JSON.stringify({ agent: "mock", prompt: "begin" }), bearer);
      residents.set(entity, JSON.parse(opened.text).child_run_id);
    }
    const path = `/v1/_resident/${residents.get(entity)}/send`;
    same(JSON.parse((await post(path, JSON.stringify({ prompt: PROMPT }), bearer)).text).output);
  };
}

async function restate() {
  const { connect } = await import("@restatedev/restate-sdk-clients");
  const ingress = connect({ url: address });
  return async (entity) => same(await ingress.objectClient({ name: "resident" }, entity).send(PROMPT));
}

async function workerd() {
  return async (entity) => same((await post(`/${entity}`, PROMPT)).text);
}

async function dockerExec() {
  const run = promisify(execFile);
  return () => run("docker", ["exec", address, "true"]);
}

// A session of a node, by the node's own protocol: MCP over HTTP.
async function hearthExec() {
  const headers = { ...bearer, accept: "application/json, text/event-stream", "x-loom-root-run": "run_peer" };
  const rpc = async (body) => {
    const answer = await post("/mcp", JSON.stringify({ jsonrpc: "2.0", ...body }), headers);
    const session = answer.headers["mcp-session-id"];
    if (session) headers["mcp-session-id"] = session;
    const lines = answer.text.split("\n").map((line) => line.replace(/^data: ?/, ""));
    return lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line)).at(-1);
  };
  const clientInfo = { name: "peers", version: "1" };
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
  await rpc({ id: 0, method: "initialize", params });
  await rpc({ method: "notifications/initialized" });
  const call = async (name, args) => {
    const { result, error } = await rpc({ id: 1, method: "tools/call", params: { name, arguments: args } });
    if (error || result.isError) throw new Error(JSON.stringify(error ?? result));
    return result.structuredContent;
  };
  const { session_id } = await call("sandbox_open", {});
  const exec = async () => {
    const { exit_code } = await call("sandbox_exec", { session_id, command: "true" });
    if (exit_code !== 0) throw new Error(`true ended with ${exit_code}`);
  };
  exec.end = () => call("sandbox_close", { session_id });
  return exec;
}

const systems = { hearth, restate, workerd, "docker-exec": dockerExec, "hearth-exec": hearthExec };
const send = await systems[system]();
const commands = system.endsWith("-exec");
for (let n = 0; n < (commands ? 3 : 50); n++) await send("one");

const times = [];
for (let n = 0; n < (commands ? 40 : 300); n++) {
  const began = process.hrtime.bigint();
  await send("one");
  times.push(Number(process.hrtime.bigint() - began) / 1e6);
}
times.sort((a, b) => a - b);
const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))].toFixed(2);

let rate = "–";
if (!commands) {
  const entities = Array.from({ length: 64 }, (_, caller) => `entity-${caller}`);
  await Promise.all(entities.map(send));
  const began = performance.now();
  let done = 0;
  const caller = async (entity) => {
    while (performance.now() < began + 5_000) {
      await send(entity);
      done += 1;
    }
  };
  await Promise.all(entities.map(caller));
  rate = Math.round((done * 1000) / (performance.now() - began)).toString();
}
await send.end?.();
console.log(`| ${label} | ${at(0.5)} | ${at(0.99)} | ${rate} |`);
// A client may keep connections that nobody can close.
process.exit(0);
