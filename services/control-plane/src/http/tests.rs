//! The surface over real connections.

mod bounds;
mod front;
mod grpc;
mod lifecycle;
mod spec;
mod usecases;

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, HttpOptions};
use super::serve::{run, table};
use super::table::Table;
use crate::auth::Auth;
use crate::config::{Settings, Sources};
use crate::wiring::{self, Replica};

const TOKEN: &str = "test-token";

/// A real embedded replica in a folder of its own.
async fn replica() -> (Replica, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let flags = vec![("data_dir", folder.path().display().to_string())];
    let settings = Settings::load(&Sources { flags, ..Sources::default() }).unwrap();
    (wiring::embedded(&settings).await.unwrap(), folder)
}

struct Server {
    address: SocketAddr,
    gateway: Gateway,
    shutdown: CancellationToken,
    ended: tokio::task::JoinHandle<Option<()>>,
    client: Client,
    _replica: (Replica, TempDir),
}

impl Server {
    async fn start() -> Self {
        Self::with(Auth::single(TOKEN), HttpOptions::default(), |table| table).await
    }

    /// A server with routes of the test's own besides.
    async fn with(auth: Auth, options: HttpOptions, routes: fn(Table) -> Table) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let replica = replica().await;
        let gateway = Gateway::new(replica.0.hearth.clone(), auth, options);
        let shutdown = CancellationToken::new();
        let ended = {
            let (gateway, shutdown) = (gateway.clone(), shutdown.clone());
            let router = routes(table()).into_router(gateway.clone());
            hearth_telemetry::task::spawn("server", async move {
                run(listener, router, &gateway, shutdown.cancelled_owned()).await;
            })
        };
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        Self { address, gateway, shutdown, ended, client, _replica: replica }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request without a token.
    fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(TOKEN)
    }

    async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: &str) -> Response {
        self.request(Method::POST, path).body(body.to_owned()).send().await.unwrap()
    }
}

/// Status, code and whole body of a refusal.
async fn refusal(response: Response) -> (u16, String, Value) {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    (status, body["error"]["code"].as_str().unwrap().to_owned(), body)
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to this: {what}");
}
