//! On a real server, which the tests start and stop.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hearth_types::{Epoch, ReplicaId, RunId};
use tokio::time::{Instant, sleep};

use super::{RedisOptions, RedisRegistry};
use crate::conformance::{self, Store};
use crate::{Error, Location, Registry};

/// A server that keeps nothing, on a port of its own; it ends with the value.
struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `None` where there is no `redis-server`, unless the environment requires one.
    async fn start() -> Option<Self> {
        Self::start_at(free_port()).await
    }

    async fn start_at(port: u16) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        let child = command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            let required = std::env::var_os("HEARTH_REQUIRE_SERVICES").is_some_and(|value| value == "1");
            assert!(!required, "redis-server is required, and not there");
            println!("skipped: there is no redis-server");
            return None;
        };
        let server = Self { child, port, _folder: folder };
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            sleep(Duration::from_millis(10)).await;
        }
        Some(server)
    }

    fn registry(&self, prefix: &str) -> RedisRegistry {
        let options = RedisOptions {
            prefix: prefix.into(),
            answer_within: Duration::from_secs(5),
            ..RedisOptions::at(format!("redis://127.0.0.1:{}", self.port))
        };
        RedisRegistry::new(options).unwrap()
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

fn at(replica: &str, epoch: u64) -> Location {
    Location { replica: ReplicaId::parse(replica).unwrap(), epoch: Epoch(epoch) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_redis_registry_keeps_the_contract() {
    let Some(server) = Server::start().await else { return };
    let stores = std::sync::atomic::AtomicUsize::new(0);
    conformance::run_all(async || {
        let prefix = format!("store{}", stores.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Store::new(vec![Arc::new(server.registry(&prefix)), Arc::new(server.registry(&prefix))], ())
    })
    .await;
}

#[tokio::test]
async fn clusters_with_other_prefixes_do_not_meet() {
    let Some(server) = Server::start().await else { return };
    let run = RunId::parse("run_a").unwrap();
    server.registry("one").claim(&run, at("r", 1)).await.unwrap();
    assert_eq!(server.registry("two").locate(&run).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_lost_everything_is_used_again_by_itself() {
    let Some(server) = Server::start().await else { return };
    let port = server.port;
    let run = RunId::parse("run_a").unwrap();
    let registry = server.registry("hearth");
    registry.claim(&run, at("r", 7)).await.unwrap();
    drop(server);
    let began = Instant::now();
    let error = registry.locate(&run).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "a call without a server took {:?}", began.elapsed());
    let _server = Server::start_at(port).await.unwrap();
    let began = Instant::now();
    let found = loop {
        match registry.locate(&run).await {
            Ok(found) => break found,
            Err(_) => assert!(began.elapsed() < Duration::from_secs(20), "it does not connect again"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(found, None, "the new server knows nothing");
    registry.claim(&run, at("r", 1)).await.unwrap();
    assert_eq!(registry.locate(&run).await.unwrap(), Some(at("r", 1)));
}

#[tokio::test]
async fn a_registry_can_be_made_before_its_server_is_there() {
    let port = free_port();
    let registry = RedisRegistry::new(RedisOptions::at(format!("redis://127.0.0.1:{port}"))).unwrap();
    assert!(registry.replicas().await.is_err());
    let Some(_server) = Server::start_at(port).await else { return };
    let began = Instant::now();
    while registry.replicas().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not connect");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A cluster of servers refuses a script whose keys are in several slots: a run's keys share its id.
#[tokio::test]
async fn keys_of_a_script_are_in_one_slot() {
    let registry = RedisRegistry::new(RedisOptions::at("redis://127.0.0.1:1")).unwrap();
    let tag = |key: &str| key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).unwrap().0.to_owned();
    let [leases, rows] = registry.member_keys(super::REPLICAS);
    assert_eq!(tag(&leases), tag(&rows));
    assert_eq!(tag(&registry.run_key(&RunId::parse("run_a").unwrap())), "run_a");
}
