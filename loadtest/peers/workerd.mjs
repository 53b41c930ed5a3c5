// A resident as a Durable Object: puts each turn into its storage and answers with its prompt.
export class Resident {
  constructor(state) {
    this.state = state;
  }

  async fetch(request) {
    const prompt = await request.text();
    const turns = (await this.state.storage.get("turns")) ?? 0;
    await this.state.storage.put({ turns: turns + 1, last: prompt });
    return new Response(prompt);
  }
}

export default {
  fetch(request, env) {
    const entity = new URL(request.url).pathname.slice(1);
    return env.residents.get(env.residents.idFromName(entity)).fetch(request);
  },
};
