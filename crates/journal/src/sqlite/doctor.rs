//! The walk over everything that `check` does.

use rusqlite::{Connection, OptionalExtension};

use super::failure::before_commit;
use super::{frames, heads};
use crate::{Error, LogKey, Position, Report};

const PLACE: &str = "the journal's file";

/// Reports what is damaged; fails only where the file cannot be read at all.
pub(super) fn check(connection: &mut Connection) -> Result<Report, Error> {
    let snapshot = connection.transaction().map_err(|error| before_commit(&error, PLACE))?;
    let mut report = Report::default();
    // A walk that SQLite itself breaks off is a finding; the others still go on.
    for walk in [check_file, check_logs, check_strays, check_heads] {
        if let Err(error) = walk(&snapshot, &mut report) {
            match before_commit(&error, PLACE) {
                Error::Corrupt { place, reason } => report.add(place, reason),
                other => return Err(other),
            }
        }
    }
    Ok(report)
}

fn check_file(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({})", Report::MAX_FINDINGS))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            report.add(PLACE, line);
        }
    }
    Ok(())
}

fn check_logs(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let mut logs = connection.prepare("SELECT id, key, last, floor FROM ends ORDER BY id")?;
    let mut frames =
        connection.prepare("SELECT position, checksum, frame FROM frames WHERE log = ?1 ORDER BY position")?;
    let mut rows = logs.query([])?;
    while let Some(row) = rows.next()? {
        let (id, key, last): (i64, String, Position) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let floor: Position = row.get(3)?;
        report.logs += 1;
        if floor > last {
            note(report, Err(frames::floor_after_end(&key, floor, last)));
        }
        // Of the frames before the floor any number may be removed already, oldest first.
        let mut wanted = None;
        let mut of_log = frames.query([id])?;
        while let Some(frame) = of_log.next()? {
            let position: Position = frame.get(0)?;
            report.frames += 1;
            let expected = wanted.unwrap_or(if position < floor { position } else { floor.max(Position(1)) });
            let sound = frames::verify(&key, expected, last, position, frame.get(1)?, frame.get_ref(2)?.as_blob()?);
            note(report, sound);
            wanted = Some(Position(position.0 + 1));
        }
        let wanted = wanted.unwrap_or(floor.max(Position(1)));
        if wanted.0 <= last.0 {
            note(report, Err(frames::missing(&key, wanted, last)));
        }
    }
    Ok(())
}

fn note(report: &mut Report, result: Result<(), Error>) {
    match result {
        Ok(()) => {}
        Err(Error::Corrupt { place, reason }) => report.add(place, reason),
        Err(other) => report.add(PLACE, other.to_string()),
    }
}

fn check_strays(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let statement = "SELECT log, position FROM frames WHERE log NOT IN (SELECT id FROM logs)";
    let mut strays = connection.prepare(statement)?;
    let mut rows = strays.query([])?;
    while let Some(row) = rows.next()? {
        let (log, position): (i64, Position) = (row.get(0)?, row.get(1)?);
        report.add(format!("log {log}@{position}"), "the frame belongs to no log");
    }
    Ok(())
}

fn check_heads(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let mut log_of = connection.prepare("SELECT id FROM logs WHERE key = ?1")?;
    let mut failed = None;
    heads::for_each(connection, |log, head| {
        report.heads += 1;
        let run = match head {
            Ok(head) => head.run_id,
            Err(error) => return note(report, Err(error)),
        };
        let found = log_of.query_row([LogKey::Run(run.clone()).to_string()], |row| row.get::<_, i64>(0)).optional();
        match found {
            Ok(Some(id)) if log == id => {}
            Ok(_) => report.add(format!("the index row of {run}"), "it does not belong to the run's log"),
            Err(error) => failed = Some(error),
        }
    })?;
    failed.map_or(Ok(()), Err)
}
