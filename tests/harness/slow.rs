//! A reader of a stream that does not keep up.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::ADMIN;

/// A reader on a socket of its own with a small buffer, which reads only when it is asked to.
#[derive(Debug)]
pub struct SlowReader(TcpStream);

impl SlowReader {
    /// Asks for the run's stream from its first event.
    pub async fn open(address: SocketAddr, id: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a connection");
        socket.set_recv_buffer_size(8 * 1024).expect("a connection");
        let mut stream = socket.connect(address).await.expect("a connection");
        let request =
            format!("GET /v1/runs/{id}/stream HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a connection");
        Self(stream)
    }

    /// Reads up to so many bytes, or to the end; the ids of the whole events among them.
    pub async fn ids(&mut self, bytes: usize) -> Vec<u64> {
        let mut text = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        while text.len() < bytes {
            match self.0.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(read) => text.extend_from_slice(&chunk[..read]),
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
    }
}
