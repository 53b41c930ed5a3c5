//! Arguments that several commands take.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hearth_client::{Client, Error, Options, Repeat, RetryPolicy};
use hearth_types::limits::MAX_BODY_BYTES;
use hearth_types::{Isolation, SandboxScope, SandboxSpec};

use crate::failure::Failure;
use crate::screen::Screen;

/// Where the server is, and who calls.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Base URL of any replica
    #[arg(long, env = "HEARTH_URL", default_value = "http://127.0.0.1:7420", value_name = "URL")]
    pub url: String,
    /// Bearer token
    #[arg(long, env = "HEARTH_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// How long to go on while the server is away [default: 2s until it first answers, then 60s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub patience: Option<Duration>,
}

impl Connection {
    pub fn client(&self, screen: &Screen) -> Result<Client, Failure> {
        let mut options = Options::new(self.url.clone(), self.token.clone());
        if let Some(patience) = self.patience {
            options.retry = RetryPolicy { first_contact: patience, outage: patience, ..RetryPolicy::default() };
        }
        if !screen.json() {
            let screen = *screen;
            options.on_repeat = Some(std::sync::Arc::new(move |repeat: &Repeat| {
                // The first repetition is often the last one: nothing to worry a person with.
                if repeat.attempts == 3 {
                    screen.complain(&format!("the server is away ({}); asking again …", repeat.cause));
                }
            }));
        }
        Client::new(options).map_err(|error| {
            let detail = match error {
                Error::Protocol(error) => error.detail,
                other => other.to_string(),
            };
            Failure::Usage(format!("--url {}: {detail}", self.url))
        })
    }
}

/// A prompt: an argument, `-` for stdin, or a file.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Prompt {
    /// The prompt; `-` reads it from stdin
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(long, short = 'f', value_name = "PATH")]
    file: Option<PathBuf>,
}

impl Prompt {
    pub fn read(self) -> Result<String, Failure> {
        match (self.prompt, self.file) {
            (Some(text), _) if text == "-" => text_of(std::io::stdin().lock(), "stdin"),
            (Some(text), _) => Ok(text),
            (None, Some(path)) => {
                let name = path.display().to_string();
                let file = std::fs::File::open(&path).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
                text_of(file, &name)
            }
            (None, None) => Err(Failure::Usage("a prompt is needed".to_owned())),
        }
    }
}

/// The whole text, within what the server takes.
fn text_of(source: impl std::io::Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let bound = MAX_BODY_BYTES as u64;
    let read = source.take(bound + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    if text.len() as u64 > bound {
        return Err(Failure::Usage(format!("{name} is longer than {bound} bytes, which no server takes")));
    }
    Ok(text)
}

/// What the run's sandbox has to be.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub struct Sandbox {
    /// Least isolation: L1, L2 or L3; what cannot be had is refused
    #[arg(long, value_parser = isolation, value_name = "LEVEL")]
    isolation: Option<Isolation>,
    /// Durable workspace that becomes /work
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,
    /// Image of the container
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// `none` or `egress`
    #[arg(long, value_name = "NET")]
    network: Option<String>,
    /// A session of its own, instead of the one that the run tree shares
    #[arg(long)]
    own_sandbox: bool,
    /// /work cannot be written
    #[arg(long)]
    read_only: bool,
}

impl Sandbox {
    pub fn spec(self) -> (Option<Isolation>, Option<SandboxSpec>) {
        let spec = SandboxSpec {
            scope: self.own_sandbox.then_some(SandboxScope::Own),
            isolation: None,
            image: self.image,
            workspace: self.workspace,
            network: self.network,
            limits: None,
            read_only: self.read_only.then_some(true),
        };
        (self.isolation, (spec != SandboxSpec::default()).then_some(spec))
    }
}

/// One page of a list, or all of it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Paging")]
pub struct Paging {
    /// Rows of a page (1–500)
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Go on where a page ended (its `next_cursor`)
    #[arg(long, value_name = "CURSOR", conflicts_with = "all")]
    pub cursor: Option<String>,
    /// All pages
    #[arg(long)]
    pub all: bool,
}

/// `500ms`, `90s`, `15m`, `2h`, `1d`; a number alone is seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err("a time is a number with ms, s, m, h or d, such as 90s or 15m".to_owned()),
    };
    let value: f64 = number.parse().map_err(|_| "a time begins with a number, such as 90s or 15m".to_owned())?;
    Duration::try_from_secs_f64(value * factor).map_err(|error| error.to_string())
}

pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub fn isolation(text: &str) -> Result<Isolation, String> {
    match text.to_ascii_uppercase().as_str() {
        "L1" => Ok(Isolation::L1),
        "L2" => Ok(Isolation::L2),
        "L3" => Ok(Isolation::L3),
        _ => Err("L1, L2 or L3".to_owned()),
    }
}

/// The value of an enum as JSON names it.
pub fn named<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|error| error.to_string())
}

/// The caller's key, or a fresh one that can be named in a hint.
pub fn key_or_fresh(key: Option<String>) -> String {
    key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in [("500ms", 500), ("2", 2_000), ("1.5s", 1_500), ("15m", 900_000), ("1h", 3_600_000)] {
            assert_eq!(millis(span(text).unwrap()), ms, "{text}");
        }
        for bad in ["", "s", "5x", "-1s", "1e999s"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_past_what_a_server_takes_is_refused_here() {
        let long = std::io::repeat(b'x').take(MAX_BODY_BYTES as u64 + 1);
        assert!(matches!(text_of(long, "stdin"), Err(Failure::Usage(_))));
        assert_eq!(text_of(&b"hi"[..], "stdin").ok().as_deref(), Some("hi"));
    }

    #[test]
    fn no_sandbox_options_say_nothing_about_the_sandbox() {
        assert_eq!(Sandbox::default().spec(), (None, None));
        let own = Sandbox { own_sandbox: true, ..Sandbox::default() };
        assert_eq!(own.spec().1.unwrap().scope, Some(SandboxScope::Own));
    }
}
