//! A server that does what a script says, one step per connection, and remembers what it was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearth_client::{Client, Options, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What becomes of one connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Accepted, read, and closed without a word.
    Drop,
    /// The text as it stands, then closed.
    Raw(String),
    /// Read, then silence for as long as the client stays.
    Hold,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Method and path.
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

pub struct Script {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    _tasks: JoinSet<()>,
}

impl Script {
    /// Once the steps are used up, the last one repeats.
    pub async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, steps)
    }

    pub fn on(listener: TcpListener, steps: Vec<Step>) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, VecDeque::from(steps), Arc::clone(&seen)));
        Self { address, seen, _tasks: tasks }
    }

    pub fn client(&self) -> Client {
        client(self.address)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

/// A client that gives up early enough for a test.
pub fn client(address: SocketAddr) -> Client {
    let retry = RetryPolicy {
        first_contact: Duration::from_secs(2),
        outage: Duration::from_secs(3),
        max_delay: Duration::from_millis(100),
    };
    Client::new(Options { retry, ..Options::new(format!("http://{address}"), Some("secret".to_owned())) }).unwrap()
}

async fn serve(listener: TcpListener, mut steps: VecDeque<Step>, seen: Arc<Mutex<Vec<Request>>>) {
    let mut held = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let Some(request) = read(&mut stream).await else { continue };
        seen.lock().unwrap().push(request);
        let step = if steps.len() > 1 { steps.pop_front().unwrap() } else { steps[0].clone() };
        match step {
            Step::Drop => {}
            Step::Raw(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                stream.shutdown().await.ok();
            }
            Step::Hold => held.push(stream),
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> =
        lines.map(|line| line.split_once(": ").unwrap()).map(|(k, v)| (k.to_lowercase(), v.to_owned())).collect();
    let mut request = Request { line, headers, body: String::new() };
    let length: usize = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
    }
    request.body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    Some(request)
}

/// A whole answer.
pub fn answer(status: &str, headers: &[&str], body: &str) -> Step {
    let mut text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    Step::Raw(format!("{text}\r\n{body}"))
}

/// A piece of an event stream, after which the connection is closed.
pub fn events(text: &str) -> Step {
    Step::Raw(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n{text}"))
}
