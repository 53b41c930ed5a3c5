//! Parked residents in bulk: written through the journal's own adapter, as their activations would have
//! left them, without a server and without a turn being run.
//!
//! Every row is what `open` of a resident of `mock` leaves behind: the same decisions of `run-core`, in
//! one frame instead of two. So a server that starts on them cannot tell them from its own.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::{ArgGroup, Args};
use futures::{StreamExt, TryStreamExt, stream};
use hearth_journal::{
    Append, JetStreamJournal, JetStreamOptions, LogKey, Position, RunHead, SharedJournal, SqliteJournal, SqliteOptions,
};
use hearth_models::built_in_definitions;
use hearth_run_core::{Command, FRAME_VERSION, Frame, Run, RunSpec, StepReport, create, decide};
use hearth_types::{AgentDefinition, Epoch, ReplicaId, RunId, Seq, SessionId, SystemClock, Timestamp, TurnId, Usage};

use crate::Error;

/// Appends under way at once: as many as one commit takes.
const WIDTH: usize = 512;
/// Nobody is to be closed for idleness while it is measured.
const IDLE_TTL_MS: u64 = 30 * 24 * 3_600_000;

/// Write parked residents into a journal that no server uses
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("journal").args(["data", "nats"]).required(true))]
pub struct SeedArgs {
    /// How many
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Data folder of a `hearth dev` that does not run; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The NATS servers of a cluster instead, whose replicas may run
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
}

pub async fn seed(args: SeedArgs) -> Result<(), Error> {
    let began = tokio::time::Instant::now();
    let cache = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    match (&args.data, &args.nats) {
        (Some(data), _) => seed_folder(data, 0..args.count).await?,
        (None, Some(url)) => {
            let options = JetStreamOptions::at(url.clone(), cache.path());
            write(Arc::new(JetStreamJournal::connect(options).await?), 0..args.count).await?;
        }
        (None, None) => return Err(Error::Usage("name --data or --nats".to_owned())),
    }
    println!("{} parked residents in {:.1} s", args.count, began.elapsed().as_secs_f64());
    Ok(())
}

/// Into the journal of a data folder.
pub(crate) async fn seed_folder(data: &std::path::Path, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(Error::io(data.display().to_string()))?;
    write(Arc::new(SqliteJournal::open(SqliteOptions::at(data.join("journal.db")))?), numbers).await
}

/// The id of the resident of a number.
pub(crate) fn resident(number: u64) -> RunId {
    RunId::derive(&["seeded", &number.to_string()])
}

pub(crate) async fn write(journal: SharedJournal, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    let definitions = built_in_definitions();
    let mock = definitions.into_iter().find(|agent| agent.name == "mock");
    let mock = Arc::new(mock.ok_or_else(|| Error::Answer("there is no built-in agent `mock`".to_owned()))?);
    let now = SystemClock::shared().now();
    stream::iter(numbers)
        .map(|number| {
            let (journal, mock) = (journal.clone(), mock.clone());
            async move { append(&journal, parked(resident(number), mock, now)?).await }
        })
        .buffer_unordered(WIDTH)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

async fn append(journal: &SharedJournal, (frame, head): (Frame, RunHead)) -> Result<(), Error> {
    let append = Append {
        key: LogKey::Run(head.run_id.clone()),
        expected: Position(0),
        append_id: frame.append_id.clone(),
        frame: Bytes::from(frame.encode().map_err(|error| Error::Answer(error.to_string()))?),
        head: Some(head),
        floor: Position(0),
    };
    Ok(journal.append(append).await.map(drop)?)
}

/// The journal of a resident that was opened with one turn, and its row in the index.
fn parked(run_id: RunId, agent: Arc<AgentDefinition>, now: Timestamp) -> Result<(Frame, RunHead), Error> {
    let refused = |reason: String| Error::Answer(format!("a resident cannot be made: {reason}"));
    let turn_id = TurnId::derive(&["first", run_id.as_str()]);
    let append_id = format!("{run_id}.seeded");
    let prompt = "hello, resident";
    let mut events = create(spec(run_id, agent), turn_id.clone(), prompt.to_owned(), ReplicaId::derive(&["seed"]));
    let frame = |first_seq, events| Frame {
        v: FRAME_VERSION,
        epoch: Epoch(1),
        append_id: append_id.clone(),
        prev: 0,
        snapshot: 0,
        floor: 0,
        first_seq,
        at: now,
        events,
    };
    let mut run = None;
    Run::fold(&mut run, frame(Seq(1), events.clone())).map_err(|error| refused(error.to_string()))?;
    let opened = run.as_ref().ok_or_else(|| refused("it has no state".to_owned()))?;
    let report = StepReport {
        turn_id,
        thinking: String::new(),
        text: prompt.to_owned(),
        calls: Vec::new(),
        usage: Usage { input_tokens: 4, output_tokens: 4 },
        truncated: false,
        error: None,
    };
    let ended =
        decide(opened, &Command::StepFinished(report), now).map_err(|refusal| refused(format!("{refusal:?}")))?;
    let next = opened.seq.next();
    Run::fold(&mut run, frame(next, ended.events.clone())).map_err(|error| refused(error.to_string()))?;
    events.extend(ended.events);
    let run = run.ok_or_else(|| refused("it has no state".to_owned()))?;
    Ok((frame(Seq(1), events), hearth_residency::head(&run)))
}

fn spec(run_id: RunId, agent: Arc<AgentDefinition>) -> RunSpec {
    RunSpec {
        session_id: SessionId::of_run(&run_id),
        root_run_id: run_id.clone(),
        run_id,
        parent: None,
        depth: 0,
        tenant: "default".to_owned(),
        subject: "admin".to_owned(),
        user_id: None,
        metadata: std::collections::BTreeMap::new(),
        agent,
        interactive: true,
        idle_ttl_ms: IDLE_TTL_MS,
        turn_timeout_ms: None,
        isolation: None,
        sandbox: None,
        max_residents: 8,
        key: None,
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use hearth_journal::{HeadQuery, Journal, MemoryJournal};
    use hearth_types::RunState;

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_bulk_is_a_resident_that_can_be_activated() {
        let journal = Arc::new(MemoryJournal::default());
        write(journal.clone(), 0..50).await.unwrap();
        let page = journal.heads(&HeadQuery { live: true, limit: 100, ..HeadQuery::default() }).await.unwrap();
        assert_eq!(page.heads.len(), 50);
        assert!(page.heads.iter().all(|head| head.state == RunState::AwaitingInput && head.resident && !head.wake));
        let folded = hearth_residency::read_run(&*journal, &resident(7)).await.unwrap().unwrap();
        assert_eq!((folded.run.state, folded.run.turns), (RunState::AwaitingInput, 1));
    }
}
