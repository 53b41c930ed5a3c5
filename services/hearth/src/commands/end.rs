//! `cancel` ends a turn, `close` ends a run.

use clap::Args;
use hearth_types::TurnId;

use super::view;
use crate::args::{Connection, named};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// End the current turn; the run stays
///
/// What the turn has put out so far is kept. A run that is parked already is left alone
/// (`stopped` is false).
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth cancel run_…
  hearth cancel run_… --turn turn_… --reason 'superseded'")]
pub struct CancelArgs {
    /// The run or resident
    run: String,
    /// Only this turn
    #[arg(long, value_name = "TURN", value_parser = named::<TurnId>)]
    turn: Option<TurnId>,
    /// Kept in the journal
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn cancel(args: CancelArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let answer = client.cancel(&args.run, args.turn.as_ref(), args.reason.as_deref()).await?;
    view::envelope(screen, &answer.body.envelope, &answer.raw)?;
    if !screen.json() && !answer.body.stopped {
        screen.complain("nothing was stopped: that turn is not running");
    }
    Ok(Verdict::Done)
}

/// End a run and all below it, for good
///
/// Answers when every descendant is final and its sandbox session gone. Durable workspaces stay.
/// Closing again is no error.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth close run_…
  hearth --json close run_… | jq .closed_descendants")]
pub struct CloseArgs {
    /// The run or resident
    run: String,
    /// Kept in the journal
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn close(args: CloseArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let answer = client.close(&args.run, args.reason.as_deref()).await?;
    if screen.json() {
        screen.document(&answer.raw)?;
    } else {
        screen.labels(&[
            ("run", answer.body.run_id.to_string()),
            ("state", answer.body.state.as_str().to_owned()),
            ("closed descendants", answer.body.closed_descendants.to_string()),
        ])?;
    }
    Ok(Verdict::Done)
}
