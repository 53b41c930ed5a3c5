//! On a real server, which the tests start and stop.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{ReplicaId, RunId};
use tokio::time::{Instant, sleep, timeout};

use super::{NatsBus, NatsOptions};
use crate::conformance::{self, Setting};
use crate::{Bus, Error, Subject};

/// A server on a port of its own; it ends with the value.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// `None` where there is no `nats-server`, unless the environment requires one.
    async fn start() -> Option<Self> {
        Self::start_at(free_port()).await
    }

    async fn start_at(port: u16) -> Option<Self> {
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            let required = std::env::var_os("HEARTH_REQUIRE_SERVICES").is_some_and(|value| value == "1");
            assert!(!required, "nats-server is required, and not there");
            println!("skipped: there is no nats-server");
            return None;
        };
        let server = Self { child, port };
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "nats-server does not listen");
            sleep(Duration::from_millis(10)).await;
        }
        Some(server)
    }

    async fn bus(&self, prefix: &str) -> NatsBus {
        let bus = NatsBus::connect(options(self.port, prefix)).await.unwrap();
        until_ready(&bus).await;
        bus
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Below the range from which the system takes ports for outgoing connections, so that none of those
/// takes it before the server does.
fn free_port() -> u16 {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = 20_000 + u16::try_from(random % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn options(port: u16, prefix: &str) -> NatsOptions {
    let small = std::num::NonZeroUsize::new(8).unwrap();
    NatsOptions {
        prefix: prefix.into(),
        subscriber_buffer: small,
        server_buffer: small,
        max_request_bytes: 5 << 20,
        ..NatsOptions::at(format!("nats://127.0.0.1:{port}"))
    }
}

async fn until_ready(bus: &NatsBus) {
    let began = Instant::now();
    while let Err(error) = bus.ready().await {
        assert!(began.elapsed() < Duration::from_secs(30), "{error}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn events() -> Subject {
    Subject::RunEvents(RunId::parse("run_a").unwrap())
}

fn commands() -> Subject {
    Subject::Commands(ReplicaId::parse("r").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nats_bus_keeps_the_contract() {
    let Some(server) = Server::start().await else { return };
    let buses = std::sync::atomic::AtomicUsize::new(0);
    conformance::run_all(async || {
        let prefix = format!("bus{}", buses.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let handles: Vec<crate::SharedBus> =
            vec![Arc::new(server.bus(&prefix).await), Arc::new(server.bus(&prefix).await)];
        Setting::new(handles, 1 << 20, ()).with_max_request_bytes(5 << 20)
    })
    .await;
}

#[tokio::test]
async fn subscriptions_and_servers_live_again_after_a_restart() {
    let Some(server) = Server::start().await else { return };
    let port = server.port;
    let (one, two) = (server.bus("hearth").await, server.bus("hearth").await);
    let mut subscription = one.subscribe(&events()).await.unwrap();
    let mut requests = one.serve(&commands()).await.unwrap();
    let mut answering = tokio::task::JoinSet::new();
    answering.spawn(async move {
        while let Some(request) = requests.incoming.recv().await {
            request.answer.send(request.payload).ok();
        }
    });
    drop(server);
    let began = Instant::now();
    let error = loop {
        // The connection may not have noticed yet.
        match two.request(&commands(), Bytes::new(), Duration::from_millis(200)).await {
            Err(error @ Error::Unavailable { .. }) => break error,
            _ => assert!(began.elapsed() < Duration::from_secs(20), "it does not notice that the server is gone"),
        }
    };
    assert!(error.to_string().contains("not connected"), "{error}");
    assert!(matches!(two.publish(&events(), Bytes::new()).await, Err(Error::Unavailable { .. })));
    assert!(matches!(two.subscribe(&events()).await, Err(Error::Unavailable { .. })));
    let _server = Server::start_at(port).await.unwrap();
    until_ready(&one).await;
    until_ready(&two).await;
    assert_eq!(two.request(&commands(), Bytes::from("hi"), Duration::from_secs(10)).await.unwrap(), "hi");
    two.publish(&events(), Bytes::from("again")).await.unwrap();
    let message = timeout(Duration::from_secs(10), subscription.messages.recv()).await.unwrap().unwrap();
    assert_eq!(message, "again");
}

#[tokio::test]
async fn a_bus_can_be_made_before_its_server_is_there() {
    let port = free_port();
    let bus = NatsBus::connect(options(port, "hearth")).await.unwrap();
    assert!(matches!(bus.publish(&events(), Bytes::new()).await, Err(Error::Unavailable { .. })));
    let Some(_server) = Server::start_at(port).await else { return };
    until_ready(&bus).await;
    bus.publish(&events(), Bytes::new()).await.unwrap();
}

#[tokio::test]
async fn clusters_with_other_prefixes_do_not_meet() {
    let Some(server) = Server::start().await else { return };
    let (one, two) = (server.bus("one").await, server.bus("two").await);
    let _requests = one.serve(&commands()).await.unwrap();
    let error = two.request(&commands(), Bytes::new(), Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(error, Error::NoResponders { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_told_to_the_requester() {
    let Some(server) = Server::start().await else { return };
    let bus = server.bus("hearth").await;
    let mut requests = bus.serve(&commands()).await.unwrap();
    let subject = commands();
    let answering = async {
        let request = requests.incoming.recv().await.unwrap();
        request.answer.send(vec![0; (1 << 20) + 1].into()).unwrap();
    };
    let (answer, ()) = tokio::join!(bus.request(&subject, Bytes::new(), Duration::from_secs(10)), answering);
    assert_eq!(answer.unwrap_err(), Error::TooLarge { bytes: (1 << 20) + 1, limit: 1 << 20 });
}

#[tokio::test]
async fn what_a_server_took_is_answered_after_it_stopped_serving() {
    let Some(server) = Server::start().await else { return };
    let bus = server.bus("hearth").await;
    let mut requests = bus.serve(&commands()).await.unwrap();
    let subject = commands();
    let answering = async {
        let request = requests.incoming.recv().await.unwrap();
        drop(requests);
        let began = Instant::now();
        while !matches!(
            bus.request(&subject, Bytes::new(), Duration::from_millis(100)).await,
            Err(Error::NoResponders { .. })
        ) {
            assert!(began.elapsed() < Duration::from_secs(20), "it still serves");
        }
        request.answer.send("late".into()).unwrap();
    };
    let (answer, ()) = tokio::join!(bus.request(&subject, Bytes::new(), Duration::from_secs(20)), answering);
    assert_eq!(answer.unwrap(), "late");
}
