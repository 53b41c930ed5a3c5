//! What the provider is sent: the conversation so far, as its messages.

use serde_json::{Value, json};

use crate::{Error, ErrorKind, Message, MessageRole, Step, StepInput, ToolRequest, ToolResult, TurnContext};

#[derive(Debug)]
pub(super) struct Conversation {
    model: String,
    messages: Vec<Value>,
    tools: Vec<Value>,
    /// Steps of this turn so far; part of the ids of their calls.
    steps: usize,
    /// Calls of the last step whose results are not here yet.
    open: Vec<ToolRequest>,
}

impl Conversation {
    pub fn begin(turn: TurnContext) -> Result<Self, Error> {
        let agent = &turn.agent;
        let Some(model) = agent.model.clone() else {
            let message = format!("agent `{}` names a provider and no `model`; name one", agent.name);
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        let mut tools = Vec::new();
        for tool in turn.tools {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if !(1..=64).contains(&tool.name.len()) || !tool.name.bytes().all(fits) {
                let message = format!("the provider takes no tool named `{}`: 1 to 64 of A-Z a-z 0-9 _ -", tool.name);
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            tools.push(json!({
                "type": "function",
                "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
            }));
        }
        let mut conversation = Self { model, messages: Vec::new(), tools, steps: 0, open: Vec::new() };
        if !agent.system_prompt.is_empty() {
            conversation.say("system", agent.system_prompt.clone());
        }
        conversation.messages.extend(turn.history.into_iter().map(message));
        conversation.say("user", turn.prompt);
        for recorded in turn.recorded {
            conversation.asked(&recorded.step);
            conversation.admit(StepInput { results: recorded.results, steered: recorded.steered })?;
        }
        Ok(conversation)
    }

    /// Takes what came since the last step.
    pub fn admit(&mut self, input: StepInput) -> Result<(), Error> {
        let open = std::mem::take(&mut self.open);
        if open.len() != input.results.len() {
            let message = format!("{} calls have {} results", open.len(), input.results.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        for (index, result) in input.results.iter().enumerate() {
            let id = self.call_id(index);
            self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": shown(result) }));
        }
        for text in input.steered {
            self.say("user", text);
        }
        Ok(())
    }

    /// Takes the step that the provider answered with.
    pub fn asked(&mut self, step: &Step) {
        self.steps += 1;
        let mut message = json!({ "role": "assistant", "content": step.text });
        if !step.tool_calls.is_empty() {
            let calls = step.tool_calls.iter().enumerate().map(|(index, call)| {
                let arguments = match &call.arguments {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let function = json!({ "name": call.name, "arguments": arguments });
                json!({ "id": self.call_id(index), "type": "function", "function": function })
            });
            message["tool_calls"] = calls.collect();
        }
        self.messages.push(message);
        self.open.clone_from(&step.tool_calls);
    }

    /// The body of the next request.
    pub fn request(&self) -> String {
        let mut body = json!({
            "model": self.model,
            "messages": self.messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if !self.tools.is_empty() {
            body["tools"] = self.tools.clone().into();
        }
        body.to_string()
    }

    fn say(&mut self, role: &str, content: String) {
        self.messages.push(json!({ "role": role, "content": content }));
    }

    /// Ids only tie a result to its call within this conversation; so they need not be the
    /// provider's own, which a resumed turn would not know.
    fn call_id(&self, index: usize) -> String {
        format!("call_{}_{index}", self.steps)
    }
}

fn message(message: Message) -> Value {
    let text = match message.content {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match message.role {
        MessageRole::User => json!({ "role": "user", "content": text }),
        MessageRole::Assistant => json!({ "role": "assistant", "content": text }),
        // Without the call it belongs to, the provider takes no `tool` message.
        MessageRole::Tool => json!({ "role": "user", "content": format!("Result of a tool:\n{text}") }),
    }
}

fn shown(result: &ToolResult) -> String {
    result.output.text()
}
