//! What is damaged is named, never skipped.

use std::path::Path;

use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{key, open, put};
use crate::conformance::Store;
use crate::{Append, Error, Journal, Position, RunHead, SqliteJournal, SqliteOptions};

const FRAMES: u64 = 5;

/// A journal with a log of five frames, closed, then changed by hand.
async fn damaged(change: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<SqliteJournal, Error>) {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for n in 0..FRAMES {
        put(&journal, "run_a", Position(n), format!("some frame number {n}").as_bytes()).await.unwrap();
    }
    put(&journal, "run_b", Position(0), b"untouched").await.unwrap();
    let store = Store::new(vec![std::sync::Arc::new(journal.clone()), std::sync::Arc::new(journal)], ());
    write_head(&store).await;
    drop(store);
    let file = folder.path().join("journal.db");
    change(&file);
    let reopened = SqliteJournal::open(SqliteOptions::at(&file));
    (folder, reopened)
}

async fn write_head(store: &Store) {
    let run = hearth_types::RunId::parse("run_h").unwrap();
    let head = RunHead {
        run_id: run.clone(),
        tenant: "t".into(),
        subject: "s".into(),
        agent: "mock".into(),
        state: hearth_types::RunState::Running,
        root_run_id: run.clone(),
        parent_run_id: None,
        session_id: hearth_types::SessionId::of_run(&run),
        resident: true,
        created_at: hearth_types::Timestamp::from_millis(1),
        wake: false,
        due_at: None,
        body: serde_json::json!("what lists show").into(),
    };
    let append = Append {
        key: key("run_h"),
        expected: Position(0),
        append_id: "h".into(),
        frame: "h".into(),
        head: Some(head),
        floor: Position(0),
    };
    store.handles[0].append(append).await.unwrap();
}

fn sql(file: &Path, statement: &str) {
    let rows = Connection::open(file).unwrap().execute(statement, []).unwrap();
    assert_eq!(rows, 1, "{statement}");
}

/// Flips one bit where `needle` stands in the file.
fn flip(file: &Path, needle: &[u8], bit: u8) {
    let mut bytes = std::fs::read(file).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).expect("the bytes are in the file");
    bytes[at] ^= 1 << bit;
    std::fs::write(file, bytes).unwrap();
}

async fn assert_corrupt_at(journal: &SqliteJournal, place: &str) {
    let error = journal.read(&key("run_a"), Position(0), 100).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place: at, .. } if at == place), "{error}");
    assert!(!error.retryable());
    let report = journal.check().await.unwrap();
    assert!(report.findings.iter().any(|finding| finding.place == place), "{report:?}");
    assert_eq!(journal.read(&key("run_b"), Position(0), 9).await.unwrap().len(), 1, "other logs are read as ever");
}

#[tokio::test]
async fn a_flipped_bit_in_a_frame_is_found() {
    for bit in [0, 3, 7] {
        let (_folder, journal) = damaged(|file| flip(file, b"some frame number 2", bit)).await;
        assert_corrupt_at(&journal.unwrap(), "run/run_a@3").await;
    }
}

#[tokio::test]
async fn a_missing_frame_is_found_wherever_it_stood() {
    for position in [1, 3, 5] {
        let statement = format!(
            "DELETE FROM frames WHERE position = {position} AND log = (SELECT id FROM logs WHERE key = 'run/run_a')"
        );
        let (_folder, journal) = damaged(|file| sql(file, &statement)).await;
        assert_corrupt_at(&journal.unwrap(), &format!("run/run_a@{position}")).await;
    }
}

#[tokio::test]
async fn a_missing_frame_is_found_at_the_edge_of_a_page() {
    let statement = "DELETE FROM frames WHERE position = 3 AND log = (SELECT id FROM logs WHERE key = 'run/run_a')";
    let (_folder, journal) = damaged(|file| sql(file, statement)).await;
    let journal = journal.unwrap();
    assert_eq!(journal.read(&key("run_a"), Position(0), 2).await.unwrap().len(), 2);
    let error = journal.read(&key("run_a"), Position(2), 2).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place == "run/run_a@3"), "{error}");
}

/// A log whose floor is its fourth frame, with `removed` of the three before it gone; then changed.
async fn trimmed(removed: usize, change: impl FnOnce(&Path)) -> (tempfile::TempDir, SqliteJournal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for n in 0..FRAMES {
        put(&journal, "run_a", Position(n), format!("some frame number {n}").as_bytes()).await.unwrap();
    }
    let raising = Append {
        key: key("run_a"),
        expected: Position(FRAMES),
        append_id: "raise".into(),
        frame: "raise".into(),
        head: None,
        floor: Position(4),
    };
    journal.append(raising).await.unwrap();
    put(&journal, "run_b", Position(0), b"untouched").await.unwrap();
    assert_eq!(journal.trim(&key("run_a"), removed).await.unwrap(), removed as u64);
    drop(journal);
    change(&folder.path().join("journal.db"));
    let journal = open(folder.path());
    (folder, journal)
}

#[tokio::test]
async fn removed_frames_are_no_damage_however_many_of_them_are_gone() {
    for removed in 0..=3 {
        let (_folder, journal) = trimmed(removed, |_| ()).await;
        let report = journal.check().await.unwrap();
        assert!(report.is_clean(), "{removed}: {report:?}");
        assert_eq!(journal.read(&key("run_a"), Position(0), 9).await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_missing_frame_is_found_in_a_trimmed_log_too() {
    for position in [4, 5, 6] {
        let statement = format!(
            "DELETE FROM frames WHERE position = {position} AND log = (SELECT id FROM logs WHERE key = 'run/run_a')"
        );
        let (_folder, journal) = trimmed(3, |file| sql(file, &statement)).await;
        assert_corrupt_at(&journal, &format!("run/run_a@{position}")).await;
    }
    // Among those that wait for their removal, too.
    let statement = "DELETE FROM frames WHERE position = 2 AND log = (SELECT id FROM logs WHERE key = 'run/run_a')";
    let (_folder, journal) = trimmed(0, |file| sql(file, statement)).await;
    let report = journal.check().await.unwrap();
    assert_eq!(report.findings.iter().map(|f| f.place.as_str()).collect::<Vec<_>>(), ["run/run_a@2"]);
}

#[tokio::test]
async fn a_floor_after_the_end_is_found() {
    let (_folder, journal) = trimmed(3, |file| sql(file, "UPDATE logs SET floor = 40 WHERE key = 'run/run_a'")).await;
    assert_corrupt_at(&journal, "run/run_a@6").await;
}

/// What makes of a file of today one of the form before.
const TO_THE_FORM_BEFORE: &str = "
    UPDATE logs SET last = (SELECT last FROM ends WHERE ends.id = logs.id),
        last_append_id = (SELECT last_append_id FROM ends WHERE ends.id = logs.id);
    DROP VIEW ends; DROP INDEX heads_final; DROP INDEX heads_busy; DROP INDEX heads_look;
    ALTER TABLE heads DROP COLUMN look_at; ALTER TABLE heads DROP COLUMN last; ALTER TABLE heads DROP COLUMN last_append_id;
    CREATE INDEX heads_state ON heads (tenant, state, created_at, run_id);
    CREATE INDEX heads_wake ON heads (run_id) WHERE wake = 1;
    CREATE INDEX heads_due ON heads (due_at, run_id) WHERE due_at IS NOT NULL;
    PRAGMA user_version = 2;
";

#[tokio::test]
async fn a_file_of_an_earlier_form_is_taken_over() {
    let before_floors = format!("{TO_THE_FORM_BEFORE} ALTER TABLE logs DROP COLUMN floor; PRAGMA user_version = 1;");
    for old in [TO_THE_FORM_BEFORE, &before_floors] {
        let (folder, journal) = damaged(|file| Connection::open(file).unwrap().execute_batch(old).unwrap()).await;
        let journal = journal.unwrap();
        assert!(journal.check().await.unwrap().is_clean());
        assert_eq!(journal.read(&key("run_a"), Position(0), 9).await.unwrap().len(), 5);
        put(&journal, "run_a", Position(FRAMES), b"more").await.unwrap();
        assert_eq!(journal.last(&key("run_h")).await.unwrap(), Position(1));
        put(&journal, "run_h", Position(1), b"more").await.unwrap();
        assert_eq!(journal.last(&key("run_h")).await.unwrap(), Position(2));
        assert!(journal.check().await.unwrap().is_clean());
        drop(journal);
        open(folder.path()).ready().await.unwrap();
    }
}

#[tokio::test]
async fn a_log_that_lost_its_count_is_found() {
    let (_folder, journal) = damaged(|file| sql(file, "UPDATE logs SET last = 3 WHERE key = 'run/run_a'")).await;
    let journal = journal.unwrap();
    assert_corrupt_at(&journal, "run/run_a@4").await;
    let error = put(&journal, "run_a", Position(3), b"over an old frame").await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");

    // Where the count stands in the index row.
    for change in ["UPDATE heads SET last = 7", "UPDATE heads SET last = 0", "DELETE FROM heads"] {
        let (folder, journal) = damaged(|_| ()).await;
        let journal = journal.unwrap();
        put(&journal, "run_h", Position(1), b"a second frame").await.unwrap();
        drop(journal);
        sql(&folder.path().join("journal.db"), change);
        let report = open(folder.path()).check().await.unwrap();
        assert!(!report.is_clean(), "{change}");
    }
}

#[tokio::test]
async fn a_frame_in_another_place_is_found() {
    let statement = "UPDATE frames SET log = (SELECT id FROM logs WHERE key = 'run/run_a'), position = 6 \
                     WHERE log = (SELECT id FROM logs WHERE key = 'run/run_b')";
    let (_folder, journal) = damaged(|file| {
        sql(file, statement);
        sql(file, "UPDATE logs SET last = 6 WHERE key = 'run/run_a'");
    })
    .await;
    let journal = journal.unwrap();
    let error = journal.read(&key("run_a"), Position(0), 100).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place == "run/run_a@6"), "{error}");
    let report = journal.check().await.unwrap();
    assert!(report.findings.iter().any(|finding| finding.place == "run/run_b@1"), "{report:?}");
}

#[tokio::test]
async fn a_damaged_index_row_is_found() {
    for change in ["state = 'closed'", "body = '\"another\"'", "created_at = 2", "resident = 0"] {
        let (_folder, journal) = damaged(|file| sql(file, &format!("UPDATE heads SET {change}"))).await;
        let journal = journal.unwrap();
        let run = hearth_types::RunId::parse("run_h").unwrap();
        assert!(matches!(journal.head(&run).await, Err(Error::Corrupt { .. })), "{change}");
        let list = journal.heads(&crate::HeadQuery { limit: 5, ..Default::default() }).await;
        assert!(matches!(list, Err(Error::Corrupt { .. })), "{change}");
        assert!(!journal.check().await.unwrap().is_clean(), "{change}");
    }
}

#[tokio::test]
async fn an_index_row_without_a_log_is_found() {
    let (_folder, journal) = damaged(|file| sql(file, "UPDATE heads SET log = 77")).await;
    let report = journal.unwrap().check().await.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert_eq!(report.findings[0].place, "the index row of run_h");
}

#[tokio::test]
async fn a_sound_journal_has_no_findings() {
    let (_folder, journal) = damaged(|_| ()).await;
    let report = journal.unwrap().check().await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.logs, report.frames, report.heads), (3, FRAMES + 2, 1));
}

#[tokio::test]
async fn findings_are_bounded() {
    let (_folder, journal) = damaged(|file| {
        let connection = Connection::open(file).unwrap();
        for n in 0..300 {
            connection.execute("INSERT INTO frames VALUES (999, ?1, 0, x'')", [n]).unwrap();
        }
    })
    .await;
    let report = journal.unwrap().check().await.unwrap();
    assert_eq!((report.findings.len(), report.further), (100, 200));
}

#[tokio::test]
async fn a_file_that_sqlite_cannot_read_is_called_damaged() {
    let wrecks: [fn(&Path); 3] = [
        |file| std::fs::write(file, vec![7u8; 8192]).unwrap(),
        |file| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        },
        |file| {
            let mut bytes = std::fs::read(file).unwrap();
            bytes[4096..].fill(0xA5);
            std::fs::write(file, bytes).unwrap();
        },
    ];
    for (n, wreck) in wrecks.into_iter().enumerate() {
        let (_folder, journal) = damaged(wreck).await;
        let error = match journal {
            Err(error) => error,
            Ok(journal) => {
                assert!(journal.check().await.map_or(true, |report| !report.is_clean()));
                journal.read(&key("run_a"), Position(0), 9).await.unwrap_err()
            }
        };
        assert!(matches!(error, Error::Corrupt { .. }), "wreck {n}: {error}");
    }
}

#[tokio::test]
async fn a_file_of_a_newer_form_is_refused_and_left_alone() {
    let (folder, journal) = damaged(|file| {
        Connection::open(file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    })
    .await;
    let error = journal.err().expect("refused").to_string();
    assert!(error.contains("version 99"), "{error}");
    let version: i64 = Connection::open(folder.path().join("journal.db"))
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 99);
}

#[tokio::test]
async fn a_database_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let error = SqliteJournal::open(SqliteOptions::at(&file)).err().expect("refused");
    assert!(error.to_string().contains("not a journal of Hearth"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in a cell, reading ends in frames as they were written or in an error.
    #[test]
    fn any_value_in_any_cell_is_found_or_harmless(
        cell in proptest::sample::select(vec![
            ("logs", "key"), ("logs", "last"), ("logs", "floor"), ("logs", "last_append_id"), ("frames", "log"),
            ("frames", "position"), ("frames", "checksum"), ("frames", "frame"), ("heads", "state"),
            ("heads", "created_at"), ("heads", "due_at"), ("heads", "run_id"), ("heads", "body"),
            ("heads", "look_at"), ("heads", "last"), ("heads", "last_append_id"),
        ]),
        number in any::<i64>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_folder, journal) = damaged(|file| {
                let connection = Connection::open(file).unwrap();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                for value in [Value::Integer(number), Value::Text(text), Value::Blob(bytes)] {
                    // The tables are strict: what a column cannot hold is refused here already.
                    let statement = format!("UPDATE {0} SET {1} = ?1 WHERE rowid = (SELECT min(rowid) FROM {0})", cell.0, cell.1);
                    connection.execute(&statement, [value]).ok();
                }
            })
            .await;
            let Ok(journal) = journal else { return };
            if let Ok(frames) = journal.read(&key("run_a"), Position(0), 9).await {
                for stored in frames {
                    let written = format!("some frame number {}", stored.position.0 - 1);
                    assert_eq!(stored.frame, written.as_bytes());
                }
            }
            let run = hearth_types::RunId::parse("run_h").unwrap();
            drop(journal.head(&run).await);
            drop(journal.heads(&crate::HeadQuery { limit: 5, ..Default::default() }).await);
            drop(journal.waking(None, 5).await);
            drop(journal.due(hearth_types::Timestamp::from_millis(i64::MAX), 5).await);
            drop(journal.check().await);
        });
    }
}
