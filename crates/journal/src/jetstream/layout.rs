//! The names that the journal has on the servers.

use hearth_types::check_id;

use crate::LogKey;

/// One stream for each partition of the logs, one for what is too large for a message, one to try
/// whether the servers store anything.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) prefix: String,
    pub(super) partitions: u16,
}

impl Layout {
    /// Which partition holds a log, for ever: the number of partitions never changes.
    pub(super) fn partition(&self, key: &LogKey) -> u16 {
        let hash = crc32fast::hash(key.to_string().as_bytes());
        u16::try_from(hash % u32::from(self.partitions)).unwrap_or(0)
    }

    pub(super) fn stream(&self, partition: u16) -> String {
        format!("{}-journal-{partition}", self.prefix)
    }

    pub(super) fn subjects(&self, partition: u16) -> String {
        format!("{}.journal.{partition}.>", self.prefix)
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
        };
        format!("{}.journal.{}.{log}", self.prefix, self.partition(key))
    }

    pub(super) fn claims_stream(&self) -> String {
        format!("{}-claims", self.prefix)
    }

    pub(super) fn claims_subjects(&self) -> String {
        format!("{}.claim.>", self.prefix)
    }

    pub(super) fn chunk_subject(&self, claim: &str, chunk: u32) -> String {
        format!("{}.claim.{claim}.{chunk}", self.prefix)
    }

    pub(super) fn chunks_of(&self, claim: &str) -> String {
        format!("{}.claim.{claim}.*", self.prefix)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let layout = Layout { prefix: "hearth".into(), partitions: 8 };
        let mut sizes = [0; 8];
        for _ in 0..8_000 {
            let key = LogKey::Run(hearth_types::RunId::generate());
            sizes[usize::from(layout.partition(&key))] += 1;
        }
        assert!(sizes.iter().all(|size| (800..1_200).contains(size)), "{sizes:?}");
    }
}
