//! The records of a snapshot: lines of JSON, the same in the store and in the portable file.
//!
//! The first says what it is, the last how many there were and the checksum of all bytes before it: a file
//! that was cut or changed does not pass.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hearth_journal::{Append, LogKey, Position, SharedJournal};
use hearth_residency::{Error, Page};
use hearth_run_core::Run;
use hearth_types::{Fault, FaultCode, RunId, SnapshotId, Tenant, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version that this program writes, and the newest it reads.
pub(super) const VERSION: u32 = 1;
/// Bytes of a whole snapshot.
pub(super) const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Bytes of one record.
pub(super) const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;
/// Runs of one snapshot.
pub(super) const MAX_RUNS: usize = 1_024;
/// Levels of nesting of a record: what callers may nest, wrapped in an event.
const MAX_DEPTH: usize = hearth_types::limits::MAX_JSON_DEPTH + 32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    Header(Header),
    /// The state of a run, and from there on its history.
    Run(Box<Run>),
    History {
        run_id: RunId,
        page: Page,
    },
    /// What follows is a workspace's archive.
    Workspace {
        name: String,
    },
    /// A piece of it, in base64.
    Data(String),
    End {
        records: u64,
        sha256: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub hearth_snapshot: u32,
    /// Of the program that took it.
    pub program: String,
    pub taken_at: Timestamp,
    /// The run that the others are below of.
    pub run_id: RunId,
    pub runs: Vec<RunId>,
    pub workspaces: Vec<String>,
    /// What could not be taken along.
    pub left_out: Vec<String>,
}

impl Record {
    pub fn data(bytes: &[u8]) -> Self {
        Self::Data(STANDARD.encode(bytes))
    }

    /// The bytes of a piece of an archive.
    pub fn decoded(text: &str) -> Result<Vec<u8>, Fault> {
        STANDARD.decode(text).map_err(|error| Fault::new(FaultCode::InvalidArgument, format!("not base64: {error}")))
    }
}

/// Reads records in order and refuses what does not belong together.
#[derive(Default)]
pub(super) struct Reader {
    header: Option<Header>,
    records: u64,
    bytes: u64,
    hash: Sha256,
    runs: BTreeSet<RunId>,
    history: Option<(RunId, u64, u64)>,
    workspaces: BTreeSet<String>,
    sum: Option<String>,
}

impl Reader {
    /// The next record, given without its end of line.
    pub fn read(&mut self, line: &[u8]) -> Result<Record, Fault> {
        let (record, byte) = (self.records + 1, self.bytes);
        self.judged(line).map_err(|reason| refused(record, byte, &reason))
    }

    /// The checksum, once all of it was read.
    pub fn finish(&self) -> Result<&str, Fault> {
        let missing = || refused(self.records + 1, self.bytes, "it ends here, before its last record: it was cut");
        self.sum.as_deref().ok_or_else(missing)
    }

    fn judged(&mut self, line: &[u8]) -> Result<Record, String> {
        if self.sum.is_some() {
            return Err("something follows the last record".to_owned());
        }
        if is_too_deep(line) {
            return Err(format!("it nests deeper than {MAX_DEPTH} levels"));
        }
        let record: Record = match self.header {
            None => Record::Header(header(line)?),
            Some(_) => hearth_types::from_own_json(line).map_err(|error| format!("it is not readable: {error}"))?,
        };
        self.place(&record)?;
        if let Record::End { records, sha256 } = &record {
            let found = hex::encode(self.hash.clone().finalize());
            if *records != self.records {
                return Err(format!("{} records came before the last one, which counts {records}", self.records));
            }
            if *sha256 != found {
                return Err(format!("the checksum of what came before is {found}, and not {sha256}: it was changed"));
            }
            self.sum = Some(found);
            return Ok(record);
        }
        self.records += 1;
        self.bytes += line.len() as u64 + 1;
        self.hash.update(line);
        self.hash.update(b"\n");
        Ok(record)
    }

    /// Whether the record may come now.
    fn place(&mut self, record: &Record) -> Result<(), String> {
        match (record, &self.header) {
            (Record::Header(header), None) => {
                if header.runs.len() > MAX_RUNS || !header.runs.contains(&header.run_id) {
                    return Err(format!("`runs` is {} ids; at most {MAX_RUNS}, its own among them", header.runs.len()));
                }
                self.header = Some(header.clone());
            }
            (Record::Header(_), Some(_)) | (_, None) => return Err("the header is the first record".to_owned()),
            (Record::Run(run), Some(header)) => {
                self.history_ended()?;
                let run_id = &run.spec.run_id;
                if !self.workspaces.is_empty() || !header.runs.contains(run_id) || !self.runs.insert(run_id.clone()) {
                    return Err(format!("the run {run_id} is not expected here"));
                }
                self.history = Some((run_id.clone(), 0, run.seq.0));
            }
            (Record::History { run_id, page }, Some(_)) => match &mut self.history {
                Some((of, told, through))
                    if of == run_id && page.first.0 == *told + 1 && page.through.0 <= *through =>
                {
                    let inside = |seq: u64| (page.first.0..=page.through.0).contains(&seq);
                    if page.through < page.first || !page.events.iter().all(|event| inside(event.seq.0)) {
                        return Err("a page of the history counts wrongly".to_owned());
                    }
                    *told = page.through.0;
                }
                _ => return Err(format!("a page of the history of {run_id} is not expected here")),
            },
            (Record::Workspace { name }, Some(header)) => {
                self.history_ended()?;
                if !header.workspaces.contains(name) || !self.workspaces.insert(name.clone()) {
                    return Err(format!("the workspace {name} is not expected here"));
                }
            }
            (Record::Data(_), Some(_)) if self.workspaces.is_empty() => {
                return Err("data comes before its workspace".to_owned());
            }
            (Record::Data(_), Some(_)) => {}
            (Record::End { .. }, Some(header)) => {
                self.history_ended()?;
                if self.runs.len() != header.runs.len() || self.workspaces.len() != header.workspaces.len() {
                    return Err("it ends before everything that its header names".to_owned());
                }
            }
        }
        Ok(())
    }

    fn history_ended(&self) -> Result<(), String> {
        match &self.history {
            Some((run_id, told, through)) if told < through => {
                Err(format!("the history of {run_id} ends at event {told}; {through} were there"))
            }
            _ => Ok(()),
        }
    }
}

fn header(line: &[u8]) -> Result<Header, String> {
    #[derive(Deserialize)]
    struct First {
        header: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        hearth_snapshot: u32,
    }
    let first: First = hearth_types::from_own_json(line).map_err(|_| "this is no snapshot of Hearth".to_owned())?;
    let version = first.header.hearth_snapshot;
    if version != VERSION {
        return Err(format!("it is of version {version}; this program reads version {VERSION}"));
    }
    match hearth_types::from_own_json(line) {
        Ok(Record::Header(header)) => Ok(header),
        Ok(_) => Err("the header is the first record".to_owned()),
        Err(error) => Err(format!("its header is not readable: {error}")),
    }
}

fn refused(record: u64, byte: u64, reason: &str) -> Fault {
    let message = format!("the snapshot is refused at record {record} (byte {byte}): {reason}");
    let details = serde_json::json!({ "record": record, "byte": byte, "reason": reason });
    Fault::new(FaultCode::InvalidArgument, message).with_details(details)
}

/// Looked at before it is decoded: the decoder would go down as deep as it nests.
fn is_too_deep(line: &[u8]) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Writes the records of one snapshot into its own log.
pub(super) struct Writer {
    journal: SharedJournal,
    key: LogKey,
    position: Position,
    records: u64,
    pub bytes: u64,
    hash: Sha256,
}

impl Writer {
    pub fn new(journal: SharedJournal, tenant: Tenant, blob: SnapshotId) -> Self {
        let key = LogKey::Snapshot(tenant, blob);
        Self { journal, key, position: Position(0), records: 0, bytes: 0, hash: Sha256::new() }
    }

    pub async fn write(&mut self, record: &Record) -> Result<(), Fault> {
        let line = serde_json::to_vec(record).map_err(|error| Fault::internal(error.to_string()))?;
        self.write_line(line).await
    }

    /// A record that is encoded already.
    pub async fn write_line(&mut self, line: Vec<u8>) -> Result<(), Fault> {
        let bytes = self.bytes + line.len() as u64 + 1;
        if bytes > MAX_BYTES || line.len() > MAX_RECORD_BYTES {
            let message = format!(
                "the snapshot is larger than {MAX_BYTES} bytes, or a record of it than {MAX_RECORD_BYTES}; take \
                 fewer runs, or leave the workspaces away"
            );
            return Err(Fault::new(FaultCode::PayloadTooLarge, message));
        }
        self.hash.update(&line);
        self.hash.update(b"\n");
        self.records += 1;
        self.bytes = bytes;
        self.append(format!("record.{}", self.records), line).await
    }

    /// The last record; the checksum.
    pub async fn finish(mut self) -> Result<(u64, String), Fault> {
        let sha256 = hex::encode(self.hash.clone().finalize());
        let end = Record::End { records: self.records, sha256: sha256.clone() };
        let line = serde_json::to_vec(&end).map_err(|error| Fault::internal(error.to_string()))?;
        let bytes = self.bytes + line.len() as u64 + 1;
        self.append("end".to_owned(), line).await?;
        Ok((bytes, sha256))
    }

    async fn append(&mut self, name: String, line: Vec<u8>) -> Result<(), Fault> {
        let append = Append {
            key: self.key.clone(),
            expected: self.position,
            append_id: name,
            frame: Bytes::from(line),
            head: None,
            floor: Position(0),
        };
        // Nobody else writes here. One that is not known to stand is asked for again, as it is.
        let mut tries = 0;
        self.position = loop {
            match self.journal.append(append.clone()).await {
                Ok(position) => break position,
                Err(hearth_journal::Error::Unknown { .. } | hearth_journal::Error::Unavailable { .. }) if tries < 5 => {
                    tries += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Vec<u8>> {
        let run_id = RunId::derive(&["a"]);
        let header = Header {
            hearth_snapshot: VERSION,
            program: "0".into(),
            taken_at: Timestamp::from_millis(0),
            run_id: run_id.clone(),
            runs: vec![run_id],
            workspaces: vec!["build".into()],
            left_out: Vec::new(),
        };
        [Record::Header(header), Record::Workspace { name: "build".into() }, Record::data(b"tar")]
            .iter()
            .map(|record| serde_json::to_vec(record).unwrap())
            .collect()
    }

    fn refusal(lines: &[Vec<u8>]) -> String {
        let mut reader = Reader::default();
        for line in lines {
            if let Err(fault) = reader.read(line) {
                assert_eq!(fault.code, FaultCode::InvalidArgument);
                return fault.message;
            }
        }
        reader.finish().unwrap_err().message
    }

    #[test]
    fn what_is_cut_changed_or_out_of_place_is_refused_with_the_place() {
        let whole = lines();
        assert!(refusal(&whole).contains("record 4") && refusal(&whole).contains("cut"));
        assert!(refusal(&whole[1..]).contains("record 1 (byte 0)"));
        let mut newer = whole.clone();
        newer[0] = br#"{"header": {"hearth_snapshot": 2, "more": 1}}"#.to_vec();
        assert!(refusal(&newer).contains("version 2"));
        let mut early = whole.clone();
        early.swap(1, 2);
        assert!(refusal(&early).contains("record 2"));
        let mut deep = whole.clone();
        deep[1] = format!("{{\"data\":{}1{}}}", "[".repeat(400), "]".repeat(400)).into_bytes();
        assert!(refusal(&deep).contains("deeper"));
        let mut ended = whole;
        ended.push(serde_json::to_vec(&Record::End { records: 3, sha256: "x".into() }).unwrap());
        assert!(refusal(&ended).contains("header names"), "{}", refusal(&ended));
    }
}
