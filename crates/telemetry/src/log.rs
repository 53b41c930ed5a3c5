//! Log lines, one per event, as text or as JSON, with the fields of the spans around them and the
//! trace id.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use opentelemetry::trace::TraceContextExt;
use serde_json::{Map, Value};
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::names::field;

/// Bytes of one value in a log line; what is past it is cut and said so.
const MAX_VALUE_BYTES: usize = 8 * 1024;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// Writes a line per event. It is a layer of its own, and not a formatter of the one that
/// tracing-subscriber has, because that keeps the fields of spans as text already formatted.
pub(crate) struct LogLayer<W> {
    format: LogFormat,
    writer: W,
    /// Needed to ask the layer of traces for the ids of a span.
    dispatch: Arc<OnceLock<WeakDispatch>>,
}

impl<W> LogLayer<W> {
    pub(crate) fn new(format: LogFormat, writer: W) -> Self {
        Self { format, writer, dispatch: Arc::default() }
    }

    fn ids_of(&self, span: &Id) -> Option<(String, String)> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(span, &dispatch)?;
        let otel_span = context.span();
        let ids = otel_span.span_context();
        ids.is_valid().then(|| (format!("{:032x}", ids.trace_id()), format!("{:016x}", ids.span_id())))
    }
}

/// The fields of one span. Of most spans no line is ever written: they are kept as they come.
struct SpanFields(Vec<(&'static str, Value)>);

impl<S, W> Layer<S> for LogLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        // A second registration is of the same subscriber.
        self.dispatch.set(subscriber.downgrade()).ok();
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().replace(SpanFields(fields.0));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(known) = span.extensions_mut().get_mut::<SpanFields>() {
            known.0.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let innermost = context.event_span(event);
        let mut around = context.event_scope(event).map(fields_around).unwrap_or_default();
        if let Some(span) = innermost {
            if let Some((trace_id, span_id)) = self.ids_of(&span.id()) {
                around.insert(field::TRACE_ID.to_owned(), trace_id.into());
                around.insert(field::SPAN_ID.to_owned(), span_id.into());
            } else if let Some(trace) = crate::trace::carried(&span) {
                around.insert(field::TRACE_ID.to_owned(), trace.trace_id().into());
            }
        }
        let line = match self.format {
            LogFormat::Json => json_line(event, own.named(), around),
            LogFormat::Text => text_line(event, own.named(), around),
        };
        // Nobody is left to be told that the log itself cannot be written.
        self.writer.make_writer_for(event.metadata()).write_all(line.as_bytes()).ok();
    }
}

/// The fields of all spans around an event; an inner span's count before an outer's.
fn fields_around<'a, R: LookupSpan<'a>>(scope: Scope<'a, R>) -> Map<String, Value> {
    let mut fields = Map::new();
    for span in scope.from_root() {
        if let Some(known) = span.extensions().get::<SpanFields>() {
            fields.extend(known.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
    }
    // What the layer of traces reads is no news to readers of logs.
    fields.retain(|name, _| !name.starts_with("otel."));
    fields
}

fn time() -> String {
    let mut text = String::new();
    SystemTime.format_time(&mut Writer::new(&mut text)).ok();
    text
}

fn json_line(event: &Event<'_>, own: Map<String, Value>, around: Map<String, Value>) -> String {
    let mut line = around;
    line.extend(own);
    line.insert("at".to_owned(), time().into());
    line.insert("level".to_owned(), event.metadata().level().as_str().into());
    line.insert("target".to_owned(), event.metadata().target().into());
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    text
}

fn text_line(event: &Event<'_>, mut own: Map<String, Value>, around: Map<String, Value>) -> String {
    let message = own.remove("message").map(|value| plain(&value)).unwrap_or_default();
    let metadata = event.metadata();
    let mut line = format!("{} {:>5} {}: {message}", time(), metadata.level(), metadata.target());
    let outer = around.into_iter().filter(|(name, _)| !own.contains_key(name)).collect::<Vec<_>>();
    for (name, value) in own.iter().chain(outer.iter().map(|(name, value)| (name, value))) {
        write!(line, " {name}={}", quoted(value)).ok();
    }
    line.push('\n');
    line
}

/// Text without control characters, so that a value cannot pass for a line or a colour.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn quoted(value: &Value) -> String {
    match value.as_str() {
        Some(text) if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '"' || c == '=') => {
            format!("{text:?}")
        }
        _ => plain(value),
    }
}

/// Collects fields as JSON values.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn named(self) -> Map<String, Value> {
        self.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn insert(&mut self, field: &Field, value: Value) {
        self.0.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, bounded(value.to_owned()).into());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, bounded(format!("{value:?}")).into());
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_VALUE_BYTES {
        let full = text.len();
        text.truncate(text.floor_char_boundary(MAX_VALUE_BYTES));
        write!(text, "… ({full} bytes)").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::{info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::names::span;

    fn logged(format: LogFormat, body: impl FnOnce()) -> String {
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let provider = SdkTracerProvider::builder().build();
        let subscriber = tracing_subscriber::registry()
            .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")))
            .with(LogLayer::new(format, Shared(written.clone())));
        tracing::subscriber::with_default(subscriber, body);
        let bytes = written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Clone)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Shared {
        type Writer = Shared;
        fn make_writer(&'a self) -> Shared {
            self.clone()
        }
    }

    #[test]
    fn a_line_carries_the_trace_and_the_fields_of_the_spans_around_it() {
        let line = logged(LogFormat::Json, || {
            let turn = info_span!(span::TURN, { field::RUN_ID } = "run_1", { field::OUTCOME } = tracing::field::Empty);
            turn.record(field::OUTCOME, "finished");
            turn.in_scope(|| {
                info_span!(span::TOOL, { field::TOOL_NAME } = "Agent").in_scope(|| info!(n = 3, "called"))
            });
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        for (name, value) in [
            ("run_id", Value::from("run_1")),
            ("hearth.outcome", "finished".into()),
            ("gen_ai.tool.name", "Agent".into()),
            ("message", "called".into()),
            ("n", 3.into()),
            ("level", "INFO".into()),
        ] {
            assert_eq!(line[name], value, "{line}");
        }
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32);
        assert_eq!(line["span_id"].as_str().unwrap().len(), 16);
    }

    #[test]
    fn a_value_can_neither_end_its_line_nor_fill_the_disk() {
        let text = logged(LogFormat::Text, || {
            warn!(body = "x".repeat(100_000), "one\ntwo\u{1b}[31m");
        });
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.contains("one\\ntwo\\u{1b}[31m"), "{}", &text[..200]);
        assert!(text.len() < MAX_VALUE_BYTES + 500 && text.contains("(100000 bytes)"));
    }
}
