//! The way to a running cluster: one line in, one line out, on a loopback port behind a secret.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::layout::control_file;
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Bytes of a request; more is no request.
const MAX_LINE: u64 = 4_096;

/// Start a member again that was killed or has ended, and wait until it is ready
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  hearth cluster restart replica-1 --data ./cluster")]
pub struct RestartArgs {
    /// `replica-0`, `node-0`, `redis`, `nats-0`, …
    id: String,
    /// The folder of the cluster
    #[arg(long, value_name = "DIR", default_value = "hearth-cluster")]
    data: PathBuf,
}

/// What a control file holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Control {
    pub port: u16,
    pub secret: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    secret: String,
    restart: String,
}

/// A wish to restart a member; answered with its JSON or a reason.
pub struct Wish {
    pub id: String,
    pub answer: oneshot::Sender<Result<Value, String>>,
}

pub async fn restart(args: RestartArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let file = control_file(&args.data);
    let text = std::fs::read_to_string(&file)
        .map_err(|error| Failure::Usage(format!("no cluster runs on {} ({error})", args.data.display())))?;
    let control: Control = serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("{} is damaged: {error}", file.display())))?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, control.port))
        .await
        .map_err(|error| Failure::failed(format!("the cluster on {} does not answer: {error}", args.data.display())))?;
    let request = serde_json::to_string(&Request { secret: control.secret, restart: args.id })
        .map_err(|error| Failure::failed(error.to_string()))?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let answer: Value =
        serde_json::from_str(&answer).map_err(|_| Failure::failed("the cluster was stopped meanwhile".to_owned()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::failed(error.to_owned())),
        None => {
            screen.line(&answer.to_string())?;
            Ok(Verdict::Done)
        }
    }
}

/// Takes wishes until the cluster stops. One at a time: members are restarted one after the other.
pub async fn listen(listener: TcpListener, secret: String, wishes: mpsc::Sender<Wish>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if answer(stream, &secret, &wishes).await.is_none() {
            // Whoever does not speak properly, or has gone, is not answered.
            continue;
        }
    }
}

async fn answer(stream: TcpStream, secret: &str, wishes: &mpsc::Sender<Wish>) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_LINE));
    tokio::time::timeout(std::time::Duration::from_secs(5), reader.read_line(&mut line)).await.ok()?.ok()?;
    let request: Request = serde_json::from_str(&line).ok()?;
    if request.secret != secret {
        return None;
    }
    let (answer, answered) = oneshot::channel();
    wishes.send(Wish { id: request.restart, answer }).await.ok()?;
    let shown = match answered.await.ok()? {
        Ok(member) => member,
        Err(reason) => json!({ "error": reason }),
    };
    writer.write_all(shown.to_string().as_bytes()).await.ok()
}
