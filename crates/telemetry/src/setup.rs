//! Switching logs and traces on, once, at the start of a process.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt, FilterFn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::log::{LogFormat, LogLayer};

/// Spans that wait for export; more are dropped, and the exporter says how many.
const QUEUED_SPANS: usize = 8_192;
const EXPORT_EVERY: Duration = Duration::from_secs(1);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the process may wait for the last export.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// What to log and where traces go.
#[derive(Debug, Clone)]
pub struct TelemetryOptions {
    /// `service.name`, unless the environment sets `OTEL_SERVICE_NAME`.
    pub service_name: String,
    /// `service.instance.id`: the id of the replica or node.
    pub instance_id: Option<String>,
    /// `service.version`.
    pub version: String,
    pub log_format: LogFormat,
    /// Directives such as `info,hearth_engine=debug`.
    pub log_filter: String,
    /// Base address of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`. Absent: nothing is
    /// exported, and trace ids are still made, logged and handed on.
    pub otlp_endpoint: Option<String>,
}

impl TelemetryOptions {
    /// What `info` shows, without the chatter of the exporter and of idle connections.
    pub const DEFAULT_LOG_FILTER: &'static str = "info,opentelemetry=warn,hyper=error,rmcp=off";
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the log filter {filter:?} is not understood: {source}; allowed: directives such as `info,hearth_engine=debug`"
    )]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("the OTLP endpoint {0:?} is not usable; allowed: http://HOST:PORT (for TLS put a collector in between)")]
    Endpoint(String),
    #[error("the OTLP exporter could not be made: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error("logs are set up already in this process")]
    AlreadySet,
}

/// Exports what is still queued when it is dropped: keep it until the end of `main`.
#[must_use = "dropping the guard ends the export of traces"]
#[derive(Debug)]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let shut_down = self.provider.as_ref().map(|provider| provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        if let Some(Err(error)) = shut_down {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Sets up logs on standard error and traces for the whole process.
///
/// # Errors
/// A filter or endpoint that is not understood; a second call in one process.
pub fn init(options: &TelemetryOptions) -> Result<Guard, Error> {
    let filter = EnvFilter::builder()
        .parse(&options.log_filter)
        .map_err(|source| Error::Filter { filter: options.log_filter.clone(), source })?;
    let provider = options.otlp_endpoint.as_deref().map(|endpoint| provider(options, endpoint)).transpose()?;
    let traces = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("hearth"))
            // Spans have one parent by structure; the ambient context of OpenTelemetry would be a second truth.
            .with_context_activation(false)
            .with_tracked_inactivity(false)
            .with_threads(false)
            .with_location(false)
            .with_filter(own_spans_and_events())
    });
    // The spans are let in whatever the filter says: a warning, too, names its run and trace.
    let logs = LogLayer::new(options.log_format, std::io::stderr)
        .with_filter(filter.or(own_spans()).and(no_spans_of_others()));
    Registry::default().with(traces).with(logs).try_init().map_err(|_| Error::AlreadySet)?;
    Ok(Guard { provider })
}

/// Without this filter the spans of hyper, h2, reqwest and tonic are exported too, those of the
/// export itself among them.
fn own_spans_and_events() -> FilterFn {
    FilterFn::new(is_own as fn(&Metadata<'_>) -> bool).with_max_level_hint(Level::INFO)
}

fn own_spans() -> FilterFn {
    FilterFn::new(is_own_span as fn(&Metadata<'_>) -> bool).with_max_level_hint(Level::INFO)
}

/// An actor's library makes a span for each actor, which would stay for as long as that lives and tell nobody anything.
fn no_spans_of_others() -> FilterFn {
    let keep: fn(&Metadata<'_>) -> bool = |metadata| !metadata.is_span() || metadata.target().starts_with("hearth");
    FilterFn::new(keep).with_max_level_hint(Level::TRACE)
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("hearth") && *metadata.level() <= Level::INFO
}

fn is_own_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && is_own(metadata)
}

fn provider(options: &TelemetryOptions, endpoint: &str) -> Result<SdkTracerProvider, Error> {
    let builder = SdkTracerProvider::builder()
        .with_resource(resource(options))
        // A caller that does not sample its trace is followed.
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)));
    // Where another part of the program asks the same HTTP library for TLS, a client cannot be made
    // without a provider of ciphers, though this one speaks plain HTTP. Whoever comes first sets it.
    rustls::crypto::ring::default_provider().install_default().ok();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(traces_url(endpoint)?)
        .with_timeout(EXPORT_TIMEOUT)
        .build()?;
    let batches =
        BatchConfigBuilder::default().with_max_queue_size(QUEUED_SPANS).with_scheduled_delay(EXPORT_EVERY).build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    Ok(builder.with_span_processor(processor).build())
}

fn traces_url(endpoint: &str) -> Result<String, Error> {
    let base = endpoint.trim_end_matches('/');
    let host = base.strip_prefix("http://").unwrap_or_default();
    if host.is_empty() || host.starts_with('/') || host.contains(char::is_whitespace) {
        return Err(Error::Endpoint(endpoint.to_owned()));
    }
    Ok(if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") })
}

fn resource(options: &TelemetryOptions) -> Resource {
    let from_environment = Resource::builder().build();
    let named = from_environment
        .iter()
        .any(|(key, value)| key.as_str() == "service.name" && !value.as_str().starts_with("unknown_service"));
    let mut resource = Resource::builder().with_attribute(KeyValue::new("service.version", options.version.clone()));
    if !named {
        resource = resource.with_service_name(options.service_name.clone());
    }
    if let Some(id) = &options.instance_id {
        resource = resource.with_attribute(KeyValue::new("service.instance.id", id.clone()));
    }
    resource.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_to_a_base_address() {
        assert_eq!(traces_url("http://127.0.0.1:4318/").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces_url("http://c:1/v1/traces").unwrap(), "http://c:1/v1/traces");
    }

    #[test]
    fn an_endpoint_that_cannot_work_is_refused_by_name() {
        for bad in ["", "127.0.0.1:4318", "https://collector", "http://", "http:///x", "grpc://c:4317"] {
            let error = traces_url(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_bad_filter_is_refused_with_what_is_allowed() {
        let options = TelemetryOptions {
            service_name: "hearth".into(),
            instance_id: None,
            version: "0".into(),
            log_format: LogFormat::Text,
            log_filter: "hearth=loud".into(),
            otlp_endpoint: None,
        };
        let error = init(&options).unwrap_err().to_string();
        assert!(error.contains("hearth=loud") && error.contains("allowed"), "{error}");
    }
}
