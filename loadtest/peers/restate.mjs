// A resident as a virtual object: keeps its transcript and answers with its prompt.
import * as restate from "@restatedev/restate-sdk";

// The SDK needs it, and Node.js 20 does not have it.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

const resident = restate.object({
  name: "resident",
  handlers: {
    send: async (context, prompt) => {
      const turns = (await context.get("turns")) ?? 0;
      context.set("turns", turns + 1);
      context.set("last", prompt);
      return prompt;
    },
  },
});

restate.serve({ services: [resident], port: Number(process.argv[2]) });
