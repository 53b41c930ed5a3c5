//! The log of a session: which runs its conversation is made of, in order.
//!
//! A session that a run starts by itself has no log: its id leads to the run. A log begins when a second
//! run joins, when a caller chose the id, or when the session carries on another one's conversation.

use std::ops::ControlFlow;
use std::sync::Arc;

use hearth_journal::{Journal, LogKey, Position};
use hearth_models::Message;
use hearth_run_core::{KeyUse, Recorded, RunSpec};
use hearth_types::{RunId, Seq, SessionId, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::history::{Conversation, each_event};

/// Runs of a session that are looked at; a longer history is read from its end.
const MAX_RUNS: usize = 10_000;
/// A text of a compressed conversation is cut beyond so many bytes, to its two ends.
const KEPT_WHOLE: usize = 4 * 1024;
const KEPT_FIRST: usize = 2 * 1024;
const KEPT_LAST: usize = 1024;

/// One entry of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Entry {
    Joined(Joined),
    Carried(Box<Carried>),
}

/// A run that goes on with the conversation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Joined {
    pub v: u32,
    pub run_id: RunId,
    /// The key that the run is begun with: who repeats it finds the run, whatever became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
}

/// The session begins with what was said in another one. Nothing is written twice: the runs of the other
/// one keep it, and what they say from now on is not part of this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    pub v: u32,
    pub at: Timestamp,
    pub parts: Vec<Part>,
    /// The agent that goes on where a message names none.
    pub agent: String,
    /// What the runs of this session take over from the newest run of the other one.
    pub spec: Arc<RunSpec>,
    pub events_copied: u64,
    pub compressed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
}

/// The conversation of one run, up to an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub run_id: RunId,
    pub through: Seq,
    /// Only what was asked and answered, long texts cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compress: bool,
}

impl Part {
    pub fn whole(run_id: RunId) -> Self {
        Self { run_id, through: Seq(u64::MAX), compress: false }
    }

    /// Visits what the part holds of the run.
    pub async fn each_event(
        &self,
        journal: &dyn Journal,
        mut visit: impl FnMut(Recorded) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let through = self.through;
        let visit = |recorded: Recorded| {
            if recorded.seq > through { ControlFlow::Break(()) } else { visit(recorded) }
        };
        each_event(journal, &self.run_id, visit).await
    }
}

/// The text as it stands in a compressed conversation; what is left out is said in its place.
pub fn compressed(text: String) -> String {
    if text.len() <= KEPT_WHOLE {
        return text;
    }
    let first = text.floor_char_boundary(KEPT_FIRST);
    let last = text.ceil_char_boundary(text.len() - KEPT_LAST);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..first], last - first, &text[last..])
}

/// The runs of a session, oldest first, and the position of its log.
#[derive(Debug, Default)]
pub struct Members {
    pub carried: Option<Carried>,
    pub runs: Vec<RunId>,
    /// The key of the newest.
    pub last_key: Option<KeyUse>,
    pub position: Position,
}

impl Members {
    pub fn are_none(&self) -> bool {
        self.runs.is_empty() && self.carried.is_none()
    }

    /// What the conversation is made of, oldest first.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        let carried = self.carried.iter().flat_map(|carried| carried.parts.iter().cloned());
        carried.chain(self.runs.iter().cloned().map(Part::whole))
    }
}

/// Reads the log of a session.
pub async fn members(journal: &dyn Journal, tenant: &Tenant, session_id: &SessionId) -> Result<Members, Error> {
    let key = LogKey::Session(tenant.clone(), session_id.clone());
    let frames = journal.read(&key, Position(0), MAX_RUNS).await?;
    let mut members =
        Members { position: frames.last().map(|frame| frame.position).unwrap_or_default(), ..Members::default() };
    let first = session_id.as_str().strip_prefix("sess_").and_then(|tail| RunId::parse(&format!("run_{tail}")).ok());
    if let Some(first) = first
        && let Some(head) = journal.head(&first).await?
        && head.tenant == *tenant
        && head.session_id == *session_id
    {
        members.runs.push(first);
    }
    for frame in frames {
        let entry: Entry = hearth_types::from_own_json(&frame.frame)
            .map_err(|error| hearth_journal::Error::Corrupt { place: key.to_string(), reason: error.to_string() })?;
        match entry {
            Entry::Joined(joined) => {
                members.runs.push(joined.run_id);
                members.last_key = joined.key;
            }
            Entry::Carried(carried) => members.carried = Some(*carried),
        }
    }
    Ok(members)
}

/// What was said before a run's current turn, in the runs before it too.
pub(crate) async fn conversation(journal: &dyn Journal, spec: &RunSpec) -> Result<Vec<Message>, Error> {
    let mut conversation = Conversation::default();
    if spec.session_id != SessionId::of_run(&spec.run_id) {
        let members = members(journal, &spec.tenant, &spec.session_id).await?;
        for part in members.parts().take_while(|part| part.run_id != spec.run_id) {
            conversation.read(journal, &part).await?;
            conversation.end_run();
        }
    }
    conversation.read(journal, &Part::whole(spec.run_id.clone())).await?;
    Ok(conversation.before_the_current_turn())
}
