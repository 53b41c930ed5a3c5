//! A provider that speaks the chat-completions protocol of OpenAI, as many do.
//!
//! One request per step, never repeated here: whether to try again is the engine's decision.

mod conversation;
mod failure;
mod http;
mod reply;
mod sse;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversation::Conversation;
use hearth_types::limits;
use http::Http;
use hyper::Response;
use hyper::body::Incoming;
use reply::Reply;
use sse::Decoder;
use tokio::time::{Instant, timeout_at};

use crate::{DeltaSink, Error, Model, ModelTurn, Step, StepInput, TurnContext};

/// A key that is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// The part before `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as a bearer token; local servers often need none.
    pub key: Option<ApiKey>,
    pub connect_timeout: Duration,
    /// How long the provider may be silent, before its first byte and between any two.
    pub idle_timeout: Duration,
    /// How long one step may take in all.
    pub step_timeout: Duration,
    /// Bytes of text, thinking and tool arguments in one step.
    pub response_bytes: usize,
    /// Bytes of one event of the stream.
    pub event_bytes: usize,
    /// Tool calls of one step.
    pub tool_calls: usize,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            key: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            step_timeout: Duration::from_secs(3600),
            response_bytes: limits::MAX_OUTPUT_BYTES,
            event_bytes: 4 << 20,
            tool_calls: 64,
        }
    }
}

/// A provider's models. Cheap to clone.
#[derive(Clone)]
pub struct OpenAi(Arc<Service>);

struct Service {
    http: Http,
    options: OpenAiOptions,
}

impl OpenAi {
    pub fn new(options: OpenAiOptions) -> Result<Self, Error> {
        let http = Http::new(&options.base_url, options.key.as_ref(), options.connect_timeout)?;
        Ok(Self(Arc::new(Service { http, options })))
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAi").field(&self.0.options).finish()
    }
}

impl Model for OpenAi {
    fn needs_history(&self) -> bool {
        true
    }

    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
        Ok(Box::new(OpenAiTurn { service: self.0.clone(), conversation: Conversation::begin(turn)? }))
    }
}

struct OpenAiTurn {
    service: Arc<Service>,
    conversation: Conversation,
}

#[async_trait]
impl ModelTurn for OpenAiTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        self.conversation.admit(input)?;
        let body = self.conversation.request();
        let step = self.service.complete(body, sink).await?;
        self.conversation.asked(&step);
        Ok(step)
    }
}

impl Service {
    /// Dropping the future closes the connection, by which the provider knows to stop.
    async fn complete(&self, body: String, sink: &dyn DeltaSink) -> Result<Step, Error> {
        let end = Instant::now() + self.options.step_timeout;
        let mut answer = self.within(end, self.http.post(body)).await?;
        if !answer.status().is_success() {
            return Err(self.refusal(end, answer).await);
        }
        let mut decoder = Decoder::new(self.options.event_bytes);
        let mut reply = Reply::new(self.options.response_bytes, self.options.tool_calls);
        while let Some(bytes) = self.within(end, http::piece(&mut answer)).await? {
            for event in decoder.take(&bytes)? {
                if event == "[DONE]" {
                    return reply.finish();
                }
                reply.take(&event, sink)?;
            }
        }
        reply.finish()
    }

    async fn within<T>(&self, end: Instant, wait: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let idle = self.options.idle_timeout;
        match timeout_at(end.min(Instant::now() + idle), wait).await {
            Ok(result) => result,
            Err(_) if Instant::now() >= end => Err(failure::timed_out("in all", self.options.step_timeout)),
            Err(_) => Err(failure::timed_out("without a word", idle)),
        }
    }

    /// The error behind a status that is none of success.
    async fn refusal(&self, end: Instant, mut answer: Response<Incoming>) -> Error {
        let mut body = Vec::new();
        while body.len() < failure::BODY_BYTES {
            match self.within(end, http::piece(&mut answer)).await {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                // What came so far has to do: the status is the message.
                Ok(None) | Err(_) => break,
            }
        }
        failure::of_status(answer.status(), answer.headers(), &body)
    }
}
