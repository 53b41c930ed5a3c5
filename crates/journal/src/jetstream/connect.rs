//! The way to the servers: the connection, what they must be, and the streams on them.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectOptions, Event, ServerInfo};
use futures::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::JetStreamOptions;
use super::layout::Layout;
use crate::Error;

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable { reason: reason.into() }
}

/// A connection that repairs itself, and a signal that counts how often it came up.
pub(super) async fn connect(options: &JetStreamOptions) -> Result<(Client, watch::Receiver<u64>), Error> {
    let (came_up, connections) = watch::channel(0);
    let mut connect = ConnectOptions::new();
    if let Some(file) = &options.credentials_file {
        connect = connect
            .credentials_file(file)
            .await
            .map_err(|error| unavailable(format!("cannot read {}: {error}", file.display())))?;
    }
    if let Some((user, password)) = options.user.clone() {
        connect = connect.user_and_password(user, password);
    }
    if let Some(file) = &options.ca_file {
        connect = connect.add_root_certificates(file.clone());
    }
    let urls: Vec<&str> = options.urls.split(',').map(str::trim).collect();
    let client = connect
        .custom_inbox_prefix(&options.inbox)
        .name(&options.name)
        .retry_on_initial_connect()
        .ping_interval(Duration::from_secs(2))
        .connection_timeout(options.answer_within)
        .reconnect_delay_callback(|attempts| {
            Duration::from_millis(u64::try_from(attempts).unwrap_or(u64::MAX).saturating_mul(50).min(1_000))
        })
        .event_callback(move |event| {
            if matches!(event, Event::Connected) {
                came_up.send_modify(|times| *times += 1);
            } else {
                tracing::warn!(%event, "the journal's connection to NATS");
            }
            std::future::ready(())
        })
        .connect(urls)
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    let mut up = connections.clone();
    match timeout(options.answer_within, up.wait_for(|times| *times > 0)).await {
        Ok(Ok(_)) => Ok((client, connections)),
        _ => Err(unavailable("NATS cannot be reached")),
    }
}

/// Room for the largest headers and a chunk.
const MIN_PAYLOAD: usize = 512 * 1024;

/// Refuses servers that break the fence.
///
/// Servers before 2.11 let two of several racing appends to a replicated stream through: measured with
/// 2.9.10, three servers and three publishers in almost half of all rounds, with 2.15.1 in none.
pub(super) async fn admit_servers(client: &Client, replicas: usize) -> Result<(), Error> {
    let own = client.server_info();
    if !own.jetstream {
        return Err(unavailable(format!("the NATS server {} has JetStream switched off", own.server_name)));
    }
    if own.max_payload < MIN_PAYLOAD {
        return Err(unavailable(format!(
            "the NATS server {} has a max_payload of {}, the journal needs {MIN_PAYLOAD}",
            own.server_name, own.max_payload
        )));
    }
    admit(&own, replicas)?;
    if replicas == 1 {
        return Ok(());
    }
    let others = own.connect_urls.iter().map(|address| async move { (address, ask_server(address).await) });
    for (address, info) in join_all(others).await {
        match info {
            Some(info) => admit(&info, replicas)?,
            None => tracing::warn!(address, "a NATS server does not tell its version; it must be 2.11 or newer"),
        }
    }
    Ok(())
}

fn admit(server: &ServerInfo, replicas: usize) -> Result<(), Error> {
    const OLDEST: (u32, u32) = (2, 11);
    if replicas == 1 || version(&server.version).is_some_and(|version| version >= OLDEST) {
        return Ok(());
    }
    Err(unavailable(format!(
        "the NATS server {} is {}: before 2.11, replicated streams let two writers of one run through; \
         upgrade it, or keep the journal on one server",
        server.server_name, server.version
    )))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim_start_matches('v').split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Every server says who it is as soon as a connection is made.
async fn ask_server(address: &str) -> Option<ServerInfo> {
    let ask = async {
        let stream = TcpStream::connect(address).await.ok()?;
        let mut line = String::new();
        BufReader::new(stream.take(64 * 1024)).read_line(&mut line).await.ok()?;
        serde_json::from_str(line.strip_prefix("INFO ")?.trim()).ok()
    };
    timeout(Duration::from_secs(1), ask).await.ok().flatten()
}

/// What all streams of the journal have in common.
pub(super) fn base(options: &JetStreamOptions) -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: usize::from(options.replicas.get()),
        allow_direct: true,
        deny_delete: true,
        duplicate_window: Duration::from_secs(120),
        ..Config::default()
    }
}

/// Makes the streams that are not there, and refuses those that are not as they should be.
pub(super) async fn lay_out(context: &Context, options: &JetStreamOptions, layout: &Layout) -> Result<(), Error> {
    for partition in 0..layout.partitions {
        let stream = Config {
            name: layout.stream(partition),
            description: Some(layout.describe(partition)),
            subjects: vec![layout.subjects(partition)],
            ..base(options)
        };
        ensure(context, stream, options).await?;
    }
    let claims = Config {
        name: layout.claims_stream(),
        description: Some("Hearth journal, parts that are too large for a message".into()),
        subjects: vec![layout.claims_subjects()],
        ..base(options)
    };
    ensure(context, claims, options).await?;
    let probe = Config {
        name: layout.probe_stream(),
        description: Some("Hearth journal, probe".into()),
        subjects: vec![layout.probe_subject()],
        discard: DiscardPolicy::Old,
        max_messages: 1,
        deny_delete: false,
        ..base(options)
    };
    ensure(context, probe, options).await
}

pub(super) async fn find(context: &Context, name: &str) -> Result<Option<Info>, Error> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            _ => Err(unavailable(format!("stream {name}: {error}"))),
        },
    }
}

/// A cluster that has just started has no leader to make streams yet, so this is tried for a while.
pub(super) async fn ensure(context: &Context, config: Config, options: &JetStreamOptions) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        match try_ensure(context, &config).await {
            Ok(()) => return Ok(()),
            Err(Error::Corrupt { reason, .. }) => return Err(unavailable(reason)),
            Err(refused) if began.elapsed() > options.start_within => return Err(refused),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn try_ensure(context: &Context, wanted: &Config) -> Result<(), Error> {
    let name = &wanted.name;
    let refused = |reason: String| Error::Corrupt { place: name.clone(), reason };
    if let Some(found) = find(context, name).await? {
        let found = found.config;
        if found.subjects != wanted.subjects || found.description != wanted.description {
            let is = found.description.unwrap_or_default();
            let wanted = wanted.description.clone().unwrap_or_default();
            return Err(refused(format!("stream {name} is \"{is}\", not \"{wanted}\"")));
        }
        if found.num_replicas < wanted.num_replicas {
            let (has, wanted) = (found.num_replicas, wanted.num_replicas);
            return Err(refused(format!("stream {name} has {has} replicas, not the configured {wanted}")));
        }
        return Ok(());
    }
    match context.create_stream(wanted.clone()).await {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            // Another replica made it at the same moment: the next look finds it.
            CreateStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                Err(unavailable(format!("stream {name}: {error}")))
            }
            _ => Err(unavailable(format!("stream {name} cannot be made: {error}"))),
        },
    }
}

pub(super) fn context(client: &Client, answer_within: Duration) -> Context {
    let mut context = jetstream::new(client.clone());
    context.set_timeout(answer_within);
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str) -> ServerInfo {
        ServerInfo { version: version.into(), server_name: "n1".into(), ..ServerInfo::default() }
    }

    #[test]
    fn replicated_streams_are_refused_on_servers_that_break_the_fence() {
        for old in ["2.9.10", "2.10.29", "1.4.1", "", "unknown", "2.9.10-RC.1"] {
            let error = admit(&server(old), 3).unwrap_err().to_string();
            assert!(error.contains("before 2.11"), "{old}: {error}");
            assert!(admit(&server(old), 1).is_ok(), "{old} is right with one replica");
        }
        for new in ["2.11.0", "2.11.0-RC.1", "2.15.1", "3.0.0"] {
            assert!(admit(&server(new), 3).is_ok(), "{new}");
        }
    }
}
