mod damage;
mod faults;
mod full;
mod kill;
mod lists;
mod queue;
mod suites;

use std::path::Path;

use bytes::Bytes;
use hearth_types::RunId;

use crate::{Append, Error, Journal, LogKey, Position, SqliteJournal, SqliteOptions};

fn open(folder: &Path) -> SqliteJournal {
    SqliteJournal::open(SqliteOptions::at(folder.join("journal.db"))).unwrap()
}

fn key(name: &str) -> LogKey {
    LogKey::Run(RunId::parse(name).unwrap())
}

async fn put(journal: &dyn Journal, name: &str, expected: Position, frame: &[u8]) -> Result<Position, Error> {
    let append = Append {
        key: key(name),
        expected,
        append_id: format!("{name}-{expected}"),
        frame: Bytes::copy_from_slice(frame),
        head: None,
        floor: Position(0),
    };
    journal.append(append).await
}
