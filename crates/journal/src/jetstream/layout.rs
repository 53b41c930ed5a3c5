//! The names that the journal has on the servers.

use hearth_types::{RunId, SessionId, SnapshotId, check_id};

use crate::LogKey;

/// One stream for each partition of the logs, one for what is too large for a message, one to try
/// whether the servers store anything.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) prefix: String,
    /// Counts the layouts that the journal has had: each has streams and subjects of its own.
    pub(super) generation: u32,
    pub(super) partitions: u16,
}

impl Layout {
    /// Which partition holds a log; another number of partitions is another layout.
    pub(super) fn partition(&self, key: &LogKey) -> u16 {
        let hash = crc32fast::hash(key.to_string().as_bytes());
        u16::try_from(hash % u32::from(self.partitions)).unwrap_or(0)
    }

    pub(super) fn stream(&self, partition: u16) -> String {
        format!("{}-journal-{}", self.prefix, self.numbered(partition))
    }

    /// The first generation has no number, as it had none before there was a second.
    fn numbered(&self, partition: u16) -> String {
        match self.generation {
            0 => partition.to_string(),
            generation => format!("{generation}-{partition}"),
        }
    }

    fn claims(&self) -> String {
        match self.generation {
            0 => String::new(),
            generation => format!("-{generation}"),
        }
    }

    pub(super) fn subjects(&self, partition: u16) -> String {
        format!("{}.journal.{}.>", self.prefix, self.numbered(partition))
    }

    pub(super) fn describe(&self, partition: u16) -> String {
        format!("Hearth journal, partition {partition} of {}", self.partitions)
    }

    pub(super) fn subject(&self, key: &LogKey) -> String {
        let log = match key {
            LogKey::Run(run) => format!("run.{run}"),
            LogKey::Session(tenant, session) => format!("session.{}.{session}", token(tenant)),
            LogKey::Catalog(tenant) => format!("catalog.{}", token(tenant)),
            LogKey::History(run) => format!("history.{run}"),
            LogKey::Snapshots(tenant) => format!("snapshots.{}", token(tenant)),
            LogKey::Snapshot(tenant, snapshot) => format!("snapshot.{}.{snapshot}", token(tenant)),
        };
        format!("{}.journal.{}.{log}", self.prefix, self.numbered(self.partition(key)))
    }

    /// The log that a subject of this layout is of.
    pub(super) fn key(&self, subject: &str) -> Option<LogKey> {
        let mut tokens = subject.strip_prefix(&format!("{}.journal.", self.prefix))?.split('.').skip(1);
        let kind = tokens.next()?;
        let first = text(tokens.next()?)?;
        let key = match kind {
            "run" => LogKey::Run(RunId::parse(&first).ok()?),
            "history" => LogKey::History(RunId::parse(&first).ok()?),
            "session" => LogKey::Session(first, SessionId::parse(&text(tokens.next()?)?).ok()?),
            "catalog" => LogKey::Catalog(first),
            "snapshots" => LogKey::Snapshots(first),
            "snapshot" => LogKey::Snapshot(first, SnapshotId::parse(&text(tokens.next()?)?).ok()?),
            _ => return None,
        };
        (self.subject(&key) == subject).then_some(key)
    }

    pub(super) fn claims_stream(&self) -> String {
        format!("{}-claims{}", self.prefix, self.claims())
    }

    pub(super) fn claims_subjects(&self) -> String {
        format!("{}.claim{}.>", self.prefix, self.claims())
    }

    pub(super) fn chunk_subject(&self, claim: &str, chunk: u32) -> String {
        format!("{}.claim{}.{claim}.{chunk}", self.prefix, self.claims())
    }

    pub(super) fn chunks_of(&self, claim: &str) -> String {
        format!("{}.claim{}.{claim}.*", self.prefix, self.claims())
    }

    /// Every stream that holds something of this layout.
    pub(super) fn streams(&self) -> Vec<String> {
        (0..self.partitions).map(|partition| self.stream(partition)).chain([self.claims_stream()]).collect()
    }

    /// Where a stream listens that takes nothing.
    pub(super) fn closed_subjects(&self, stream: &str) -> String {
        format!("{}.closed.{stream}.>", self.prefix)
    }

    /// Holds the one record that says which layout stands.
    pub(super) fn standing_stream(&self) -> String {
        format!("{}-layout", self.prefix)
    }

    pub(super) fn standing_subject(&self) -> String {
        format!("{}.layout", self.prefix)
    }

    /// Where whoever uses the journal answers.
    pub(super) fn users_subject(&self) -> String {
        format!("{}.journal-users", self.prefix)
    }

    pub(super) fn probe_stream(&self) -> String {
        format!("{}-probe", self.prefix)
    }

    pub(super) fn probe_subject(&self) -> String {
        format!("{}.probe", self.prefix)
    }
}

/// The text as one token of a subject, or as a header's value: itself if it has the form of an id, else
/// in hex behind a mark that no id has.
pub(super) fn token(text: &str) -> String {
    if check_id(text).is_ok() { text.to_owned() } else { format!("={}", hex::encode(text)) }
}

/// The text that [`token`] wrote.
pub(super) fn text(token: &str) -> Option<String> {
    match token.strip_prefix('=') {
        Some(digits) => String::from_utf8(hex::decode(digits).ok()?).ok(),
        None => Some(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(generation: u32) -> Layout {
        Layout { prefix: "hearth".into(), generation, partitions: 8 }
    }

    #[test]
    fn a_subject_tells_its_log_and_layouts_share_none() {
        let run = RunId::generate();
        let keys = [
            LogKey::Run(run.clone()),
            LogKey::History(run.clone()),
            LogKey::Session("a tenant.".into(), SessionId::of_run(&run)),
            LogKey::Catalog("t".into()),
            LogKey::Snapshots("t".into()),
            LogKey::Snapshot("a tenant.".into(), SnapshotId::generate()),
        ];
        for key in keys {
            for generation in [0, 1, 12] {
                let subject = layout(generation).subject(&key);
                assert_eq!(layout(generation).key(&subject), Some(key.clone()), "{subject}");
                assert_eq!(layout(generation + 1).key(&subject), None, "{subject}");
                let own = layout(generation).subjects(layout(generation).partition(&key));
                assert!(subject.starts_with(own.trim_end_matches('>')), "{subject} is stored by {own}");
            }
        }
        for other in ["hearth.journal.0.run", "hearth.journal.0.other.run_a", "other.journal.0.run.run_a", ""] {
            assert_eq!(layout(0).key(other), None, "{other}");
        }
    }

    #[test]
    fn a_token_is_one_token_and_names_one_text() {
        for text in ["", "a.b", "a b", "*", ">", "ü", "=61"] {
            let token = token(text);
            assert!(!token.contains(['.', ' ', '*', '>']) && token.starts_with('='), "{text:?}: {token}");
        }
        assert_eq!(token("replica-0"), "replica-0");
        assert_ne!(token("=61"), token("a"));
    }

    #[test]
    fn partitions_share_the_logs_evenly() {
        let layout = layout(0);
        let mut sizes = [0; 8];
        for _ in 0..8_000 {
            let key = LogKey::Run(hearth_types::RunId::generate());
            sizes[usize::from(layout.partition(&key))] += 1;
        }
        assert!(sizes.iter().all(|size| (800..1_200).contains(size)), "{sizes:?}");
    }
}
