//! The operator's hand on the stores: what their command lines would ask, in their own protocols.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Cluster;

impl Cluster {
    /// Leaves the journal's streams the room that they take now, or lifts that bound again.
    pub async fn fill_journal(&self, full: bool) {
        let address = self.nats_url().rsplit_once("//").expect("a URL").1.to_owned();
        let names = ask(&address, "$JS.API.STREAM.NAMES", "").await["streams"].clone();
        for name in names.as_array().expect("a list").iter().filter_map(Value::as_str) {
            if !name.contains("-journal-") && !name.contains("-claims") {
                continue;
            }
            let info = ask(&address, &format!("$JS.API.STREAM.INFO.{name}"), "").await;
            let mut config = info["config"].clone();
            let taken = info["state"]["bytes"].as_u64().expect("a number");
            config["max_bytes"] = if full { (taken + 1).into() } else { (-1).into() };
            let updated = ask(&address, &format!("$JS.API.STREAM.UPDATE.{name}"), &config.to_string()).await;
            assert!(updated["error"].is_null(), "{updated}");
        }
    }
}

impl Cluster {
    /// Has Redis write down what it knows: it begins with that when it is started again.
    pub async fn save_redis(&self) {
        let address = self.redis_url().rsplit_once("//").expect("a URL").1;
        let mut stream = BufReader::new(TcpStream::connect(address).await.expect("Redis is there"));
        stream.write_all(b"SAVE\r\n").await.expect("Redis takes the request");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("Redis answers");
        assert_eq!(line.trim(), "+OK");
    }
}

/// One request and its answer.
async fn ask(address: &str, subject: &str, body: &str) -> Value {
    let mut stream = BufReader::new(TcpStream::connect(address).await.expect("NATS is there"));
    let request =
        format!("CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{body}\r\n", body.len());
    stream.write_all(request.as_bytes()).await.expect("NATS takes the request");
    let mut line = String::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.expect("NATS answers");
        assert!(!line.is_empty() && !line.starts_with("-ERR"), "{line}");
        if let Some(length) = line.strip_prefix("MSG ").and_then(|rest| rest.trim().rsplit(' ').next()) {
            let mut answer = vec![0; length.parse().expect("a length")];
            stream.read_exact(&mut answer).await.expect("a whole answer");
            return serde_json::from_slice(&answer).expect("JSON");
        }
    }
}
