//! Carrying the trace context between spans, headers and journals.
//!
//! Where traces are exported, spans have ids of their own in them. Where they are not, the layer that
//! makes those would cost a call a tenth of its time for nothing: then a span just carries the context
//! of its caller, so that the trace id goes on through logs, journals and headers all the same.

use hearth_types::TraceContext;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::names::field;

/// The context of a remote span, as the parent of spans here.
pub fn context_from(trace: &TraceContext) -> opentelemetry::Context {
    match span_context_from(trace) {
        Some(remote) => opentelemetry::Context::new().with_remote_span_context(remote),
        None => opentelemetry::Context::new(),
    }
}

fn span_context_from(trace: &TraceContext) -> Option<SpanContext> {
    let mut parts = trace.as_str().split('-').skip(1);
    let trace_id = TraceId::from_hex(parts.next()?).ok()?;
    let span_id = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    Some(SpanContext::new(trace_id, span_id, TraceFlags::new(flags), true, TraceState::default()))
}

/// What a span carries whose ids nobody would see.
struct Carried(TraceContext);

/// What the span carries, or the nearest around it.
pub(crate) fn carried<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<TraceContext> {
    span.scope().find_map(|span| span.extensions().get::<Carried>().map(|carried| carried.0.clone()))
}

/// Does something with the registry's side of a span; nothing where there is no registry.
fn at<T>(span: &Span, act: impl FnOnce(SpanRef<'_, Registry>) -> Option<T>) -> Option<T> {
    let acted = span.with_subscriber(|(id, dispatch)| {
        let registry = dispatch.downcast_ref::<Registry>()?;
        act(registry.span(id)?)
    });
    acted.flatten()
}

/// The context of a span that was made here, to hand on; `None` for one without.
pub fn trace_of(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let otel_span = context.span();
    let here = otel_span.span_context();
    if !here.is_valid() {
        return at(span, |span| carried(&span));
    }
    // Only the sampled flag is defined; the header's other bits must be sent as zero.
    let flags = u8::from(here.is_sampled());
    TraceContext::parse(&format!("00-{:032x}-{:016x}-{flags:02x}", here.trace_id(), here.span_id()))
}

/// The context of the current span, to put into a command, a journal or a header.
pub fn current_trace() -> Option<TraceContext> {
    trace_of(&Span::current())
}

/// Makes a remote span the parent of `span`. To be called before the span is entered: a span that
/// was looked at has its ids already, and keeps them.
pub fn set_parent(span: &Span, trace: &TraceContext) {
    if span.set_parent(context_from(trace)).is_err() {
        // A span whose level is switched off has no place for it either.
        at(span, |span| span.extensions_mut().replace(Carried(trace.clone())));
    }
}

/// Gives a span its parent, if there is one, and tells the context to hand on. There is always one:
/// where traces are not exported it is the caller's own, or a fresh one.
pub fn adopt(span: &Span, parent: Option<&TraceContext>) -> TraceContext {
    if let Some(parent) = parent {
        set_parent(span, parent);
    }
    let trace = trace_of(span).or_else(|| parent.cloned()).unwrap_or_else(|| {
        let fresh = fresh_trace();
        set_parent(span, &fresh);
        fresh
    });
    span.record(field::TRACE_ID, trace.trace_id());
    trace
}

/// A context that no span has, for where traces are not exported. It is marked as sampled, so that
/// whoever does export further down does not leave it out.
pub fn fresh_trace() -> TraceContext {
    let ids = RandomIdGenerator::default();
    loop {
        // All zero is the one value that is not an id.
        let header = format!("00-{:032x}-{:016x}-01", ids.new_trace_id(), ids.new_span_id());
        if let Some(trace) = TraceContext::parse(&header) {
            return trace;
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing::info_span;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn with_traces<T>(body: impl FnOnce() -> T) -> (T, Vec<opentelemetry_sdk::trace::SpanData>) {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        let value = tracing::subscriber::with_default(subscriber, body);
        (value, exporter.get_finished_spans().unwrap())
    }

    #[test]
    fn a_span_joins_the_trace_of_its_remote_parent_and_hands_it_on() {
        let parent = TraceContext::parse(PARENT).unwrap();
        let (handed_on, spans) = with_traces(|| {
            let span = info_span!("outer");
            let handed_on = adopt(&span, Some(&parent));
            span.in_scope(|| info_span!("inner").in_scope(|| assert_ne!(current_trace().unwrap(), handed_on)));
            handed_on
        });
        assert_eq!(handed_on.trace_id(), parent.trace_id());
        let [inner, outer] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(format!("{:016x}", outer.parent_span_id), "b7ad6b7169203331");
        assert_eq!(inner.parent_span_id, outer.span_context.span_id());
        assert_eq!(format!("{:032x}", inner.span_context.trace_id()), parent.trace_id());
        assert!(handed_on.as_str().contains(&format!("{:016x}", outer.span_context.span_id())));
    }

    #[test]
    fn without_a_parent_every_span_starts_a_trace_of_its_own() {
        let ((one, two), _) = with_traces(|| (adopt(&info_span!("a"), None), adopt(&info_span!("b"), None)));
        assert_ne!(one.trace_id(), two.trace_id());
    }

    #[test]
    fn without_traces_the_callers_trace_is_handed_on_or_a_fresh_one_made() {
        let parent = TraceContext::parse(PARENT).unwrap();
        assert_eq!(adopt(&Span::none(), Some(&parent)), parent);
        assert_ne!(adopt(&Span::none(), None).trace_id(), adopt(&Span::none(), None).trace_id());
        assert_eq!(current_trace(), None);
    }

    #[test]
    fn where_nothing_is_exported_the_spans_within_carry_the_trace_of_the_outer() {
        tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            let parent = TraceContext::parse(PARENT).unwrap();
            let (outer, other) = (info_span!("outer"), info_span!("other"));
            assert_eq!(adopt(&outer, Some(&parent)), parent);
            let fresh = adopt(&other, None);
            outer.in_scope(|| info_span!("inner").in_scope(|| assert_eq!(current_trace(), Some(parent.clone()))));
            other.in_scope(|| assert_eq!(current_trace(), Some(fresh)));
            assert_eq!(current_trace(), None);
        });
    }
}
