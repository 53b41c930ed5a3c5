//! `doctor`: checks a data folder and a configuration while no server uses them.

use std::path::{Path, PathBuf};

use clap::Args;
use hearth_control_plane::config::{Settings, Sources};
use hearth_journal::{Report, SqliteJournal, SqliteOptions};
use serde_json::json;

use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Check a data folder and the settings, and say what to do
///
/// Reads every frame of every journal and compares it with its checksum and place. The server must be
/// stopped. Exit code 0 when nothing is wrong, 1 when something is.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth doctor --data ./hearth-data
  hearth doctor --config hearth.toml
  hearth --json doctor --data ./hearth-data | jq .findings")]
pub struct DoctorArgs {
    /// Folder to check [default: that of the settings]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// File of settings to check
    #[arg(long, env = "HEARTH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

pub async fn doctor(args: DoctorArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let usage = |error: hearth_control_plane::config::ConfigError| Failure::Usage(error.to_string());
    let sources = Sources::read(args.config.as_deref(), environment, Vec::new()).map_err(usage)?;
    let settings = Settings::load(&sources).map_err(usage)?;
    let named = args.data.is_some();
    let data = args.data.unwrap_or(settings.data_dir);
    let journal = data.join("journal.db");
    if !journal.is_file() && !named && args.config.is_some() {
        return settings_only(screen, &journal);
    }
    if !journal.is_file() {
        return Err(Failure::Usage(format!(
            "{} is not there: name the folder that `hearth dev` was given with --data",
            journal.display()
        )));
    }
    let (report, unreadable) = match examine(&journal).await {
        Ok(report) => (report, None),
        Err(error) => (Report::default(), Some(error)),
    };
    show(screen, &data, &report, unreadable.as_ref())?;
    Ok(if report.is_clean() && unreadable.is_none() { Verdict::Done } else { Verdict::Failed })
}

async fn examine(journal: &Path) -> Result<Report, hearth_journal::Error> {
    SqliteJournal::open(SqliteOptions::at(journal))?.check().await
}

/// A configuration may be checked before anything was served with it, and a replica of a cluster has no
/// journal of its own.
fn settings_only(screen: &Screen, journal: &Path) -> Result<Verdict, Failure> {
    if screen.json() {
        screen.document(&json!({ "settings": "right", "data": null }))?;
    } else {
        screen.line(&format!("the settings are right; {} is not there, so no data was checked", journal.display()))?;
    }
    Ok(Verdict::Done)
}

const ADVICE: &str = "\
What to do:
  1. Stop here: keep a copy of the folder as it is.
  2. Runs that are not named above are whole; they can be served.
  3. For the others restore journal.db, with its -wal and -shm, from a backup taken before the damage;
     what was accepted since then is lost.";

const NOT_LOOKED_AT: &str = "\
Nothing was looked at, and nothing says that anything is damaged. Stop the server that uses the folder, or run this as
a user who may read and write it; then ask again.";

fn show(
    screen: &Screen,
    data: &Path,
    report: &Report,
    unreadable: Option<&hearth_journal::Error>,
) -> Result<(), Failure> {
    if screen.json() {
        return screen.document(&json!({
            "data": data.display().to_string(),
            "logs": report.logs, "frames": report.frames, "heads": report.heads,
            "findings": report.findings, "further": report.further, "unreadable": unreadable.map(ToString::to_string),
        }));
    }
    if let Some(reason) = unreadable {
        screen.line(&format!("the journal cannot be opened: {reason}"))?;
        let damaged = matches!(reason, hearth_journal::Error::Corrupt { .. });
        return screen.line(if damaged { ADVICE } else { NOT_LOOKED_AT });
    }
    for finding in &report.findings {
        screen.line(&format!("{}: {}", finding.place, finding.what))?;
    }
    if report.further > 0 {
        screen.line(&format!("and {} more", report.further))?;
    }
    let walked = format!("{} logs, {} frames, {} index rows", report.logs, report.frames, report.heads);
    if report.is_clean() {
        return screen.line(&format!("{walked}: all as they were written"));
    }
    screen.line(&walked)?;
    screen.line(ADVICE)
}
