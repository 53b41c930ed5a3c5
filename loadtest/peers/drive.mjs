// Drives one system with the job that all get: 300 sends of one caller to one entity, each awaited, then
// 64 callers with an entity each for five seconds. Prints one line of the table.
//
//   node drive.mjs SYSTEM ADDRESS
import { execFile } from "node:child_process";
import http from "node:http";
import { promisify } from "node:util";

const [system, address] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 128 });
const PROMPT = "what would you like to have for breakfast today?";

function post(path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${address}${path}`, { method: "POST", agent, headers }, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("end", () => {
        const text = Buffer.concat(pieces).toString();
        if (response.statusCode < 300) resolve(text);
        else reject(new Error(`${response.statusCode}: ${text.slice(0, 200)}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

const json = { "content-type": "application/json" };
const bearer = { ...json, authorization: "Bearer peer-token" };
const residents = new Map();

async function hearthResident(entity) {
  if (!residents.has(entity)) {
    const opened = await post("/v1/_resident", JSON.stringify({ agent: "mock", prompt: "begin" }), bearer);
    residents.set(entity, JSON.parse(opened).child_run_id);
  }
  return residents.get(entity);
}

const systems = {
  hearth: async (entity) => {
    const id = await hearthResident(entity);
    await post(`/v1/_resident/${id}/send`, JSON.stringify({ prompt: PROMPT }), bearer);
  },
  restate: (entity) => post(`/resident/${entity}/send`, JSON.stringify(PROMPT), json),
  workerd: (entity) => post(`/${entity}`, PROMPT),
  "docker-exec": () => promisify(execFile)("docker", ["exec", address, "true"]),
};

const send = systems[system];
const slow = system === "docker-exec";
for (let n = 0; n < (slow ? 3 : 50); n++) await send("one");

const times = [];
for (let n = 0; n < (slow ? 40 : 300); n++) {
  const began = process.hrtime.bigint();
  await send("one");
  times.push(Number(process.hrtime.bigint() - began) / 1e6);
}
times.sort((a, b) => a - b);
const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))].toFixed(2);

let rate = "-";
if (!slow) {
  const until = Date.now() + 5_000;
  let done = 0;
  const callers = Array.from({ length: 64 }, async (_, caller) => {
    while (Date.now() < until) {
      await send(`entity-${caller}`);
      done += 1;
    }
  });
  const began = Date.now();
  await Promise.all(callers);
  rate = Math.round((done * 1000) / (Date.now() - began)).toString();
}
console.log(`${system.padEnd(14)} ${at(0.5).padStart(12)} ${at(0.99).padStart(12)} ${rate.padStart(14)}`);
agent.destroy();
