//! Whether a member can serve, as its own protocol says.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ASK_AGAIN: Duration = Duration::from_millis(50);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub enum Probe {
    /// `GET /readyz` answers 200.
    Http { port: u16 },
    /// `PING` is answered.
    Redis { port: u16 },
    /// A greeting is sent.
    Nats { port: u16 },
}

/// Asks until it is ready or the time is over.
pub async fn wait(probe: &Probe, within: Duration) -> bool {
    let until = tokio::time::Instant::now() + within;
    loop {
        if let Ok(Some(())) = tokio::time::timeout(ANSWER_WITHIN, ask(probe)).await {
            return true;
        }
        if tokio::time::Instant::now() > until {
            return false;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn ask(probe: &Probe) -> Option<()> {
    let (port, question, wanted) = match probe {
        Probe::Http { port } => {
            (*port, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 200")
        }
        Probe::Redis { port } => (*port, "PING\r\n", "+PONG"),
        Probe::Nats { port } => (*port, "", "INFO "),
    };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer).await.ok()?;
    (answer == wanted.as_bytes()).then_some(())
}
