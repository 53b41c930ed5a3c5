//! A way to a store that can be broken.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing passes and nothing is closed, as when cables are cut.
    Held,
    /// What goes to the store arrives, what it answers is lost.
    AnswersLost,
}

/// Passes the bytes of every connection on, until it is told otherwise.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    way: watch::Sender<(Way, u64)>,
    /// It ends with this.
    _task: JoinSet<()>,
}

impl Proxy {
    /// `target` is `HOST:PORT`, or a URL with no more than that.
    pub async fn to(target: &str) -> Self {
        let target = target.rsplit_once("//").map_or(target, |(_, rest)| rest).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (way, watched) = watch::channel((Way::Open, 0));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let (target, way) = (target.clone(), watched.clone());
                connections.spawn(async move {
                    let Ok(server) = TcpStream::connect(&target).await else { return };
                    carry(client, server, way).await;
                });
            }
        });
        Self { address, way, _task: task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn hold(&self) {
        self.set(Way::Held);
    }

    pub fn lose_answers(&self) {
        self.set(Way::AnswersLost);
    }

    /// New connections pass again; those there were are closed, as what they lost does not come again.
    pub fn open(&self) {
        self.set(Way::Open);
    }

    fn set(&self, way: Way) {
        self.way.send_modify(|(now, openings)| {
            *now = way;
            *openings += u64::from(way == Way::Open);
        });
    }
}

async fn carry(client: TcpStream, server: TcpStream, way: watch::Receiver<(Way, u64)>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let opening = way.borrow().1;
    let mut closed = way.clone();
    tokio::select! {
        () = pass(&mut from_client, &mut to_server, way.clone(), Way::Held) => {}
        () = pass(&mut from_server, &mut to_client, way, Way::AnswersLost) => {}
        _ = closed.wait_for(|(_, openings)| *openings > opening) => {}
    }
}

/// Ends with the connection. What comes while the way is `stops_at`, or held, is not passed on.
async fn pass(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    way: watch::Receiver<(Way, u64)>,
    stops_at: Way,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count) = from.read(&mut buffer).await else { return };
        if count == 0 {
            return;
        }
        let now = way.borrow().0;
        if now == Way::Held || now == stops_at {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
