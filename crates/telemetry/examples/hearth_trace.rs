//! Emits one trace with a remote parent, for a look at it in an OTLP receiver:
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run -p hearth-telemetry --example hearth_trace`.

use hearth_telemetry::names::{field, span};
use hearth_telemetry::{LogFormat, TelemetryOptions, adopt, current_trace, init};
use hearth_types::TraceContext;
use tracing::{Instrument, info, info_span};

#[tokio::main]
async fn main() -> Result<(), hearth_telemetry::Error> {
    let _guard = init(&TelemetryOptions {
        service_name: "hearth-example".to_owned(),
        instance_id: Some("replica-example".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        log_format: LogFormat::Json,
        log_filter: TelemetryOptions::DEFAULT_LOG_FILTER.to_owned(),
        otlp_endpoint: std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok(),
    })?;
    let caller = std::env::args().nth(1).and_then(|header| TraceContext::parse(&header));
    let request = info_span!(
        span::HTTP_REQUEST,
        { field::OTEL_NAME } = "POST /v1/runs",
        { field::OTEL_KIND } = "server",
        { field::TRACE_ID } = tracing::field::Empty,
    );
    adopt(&request, caller.as_ref());
    async {
        let turn = info_span!(span::TURN, { field::RUN_ID } = "run_example");
        async { info!(trace = ?current_trace(), "a turn") }.instrument(turn).await;
        tokio::task::yield_now().await;
    }
    .instrument(request)
    .await;
    Ok(())
}
