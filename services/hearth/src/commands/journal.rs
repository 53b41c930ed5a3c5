//! `journal`: what an operator does to the journal of a cluster that stands still.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hearth_control_plane::config::{ConfigError, Settings, Sources};
use hearth_control_plane::wiring;
use serde_json::json;

use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Change how the journal of a cluster lies on its NATS servers
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  hearth journal repartition --config hearth.toml --from 8 --to 24")]
pub struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    Repartition(RepartitionArgs),
}

/// Change the number of partitions, while all replicas are stopped
///
/// Copies every log into streams of its own and then lets those stand; the old ones go at the end. Refused while a
/// replica uses the journal. It needs room for a second copy. If it is interrupted, begin it again: it goes on.
/// Afterwards set `journal_partitions` to the new number for every replica.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth journal repartition --config hearth.toml --from 8 --to 24
  hearth journal repartition --config hearth.toml --cancel")]
struct RepartitionArgs {
    /// Partitions that the journal has
    #[arg(long, value_name = "NUMBER", required_unless_present = "cancel", value_parser = partitions)]
    from: Option<NonZeroU16>,
    /// Partitions that it is to have
    #[arg(long, value_name = "NUMBER", required_unless_present = "cancel", value_parser = partitions)]
    to: Option<NonZeroU16>,
    /// Give up a change that was begun: the journal stays as it was
    #[arg(long, conflicts_with_all = ["from", "to"])]
    cancel: bool,
    /// File of settings, that of a replica
    #[arg(long, env = "HEARTH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

const MOST: u16 = 1_024;

fn partitions(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU16| number.get() <= MOST);
    number.ok_or_else(|| format!("a number from 1 to {MOST}"))
}

pub async fn journal(args: JournalArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let JournalCommand::Repartition(args) = args.command;
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let usage = |error: ConfigError| Failure::Usage(error.to_string());
    let sources = Sources::read(args.config.as_deref(), environment, Vec::new()).map_err(usage)?;
    let settings = Settings::load(&sources).map_err(usage)?;
    let failed = |error: wiring::StartError| Failure::failed(error.to_string());
    let (Some(from), Some(to)) = (args.from, args.to) else {
        let begun = wiring::cancel_repartition(&settings).await.map_err(failed)?;
        return cancelled(screen, begun);
    };
    let shown = *screen;
    let told = move |progress: wiring::Progress| {
        if !shown.json() {
            let wiring::Progress { partition, of, logs } = progress;
            shown.complain(&format!("partition {} of {of}: {logs} logs are copied", partition + 1));
        }
    };
    let done = wiring::repartition(&settings, from, to, &told).await.map_err(failed)?;
    if screen.json() {
        screen.document(
            &json!({ "partitions": to, "already": done.already, "logs": done.logs, "frames_copied": done.frames }),
        )?;
    } else if done.already {
        screen.line(&format!("the journal has {to} partitions already"))?;
    } else {
        screen
            .line(&format!("the journal has {to} partitions now: {} logs, {} frames copied", done.logs, done.frames))?;
        screen.line(&format!("set journal_partitions = {to} for every replica before it starts"))?;
    }
    Ok(Verdict::Done)
}

fn cancelled(screen: &Screen, begun: bool) -> Result<Verdict, Failure> {
    if screen.json() {
        screen.document(&json!({ "cancelled": begun }))?;
    } else {
        let told = if begun { "given up: the journal is as it was" } else { "no change was begun" };
        screen.line(told)?;
    }
    Ok(Verdict::Done)
}
