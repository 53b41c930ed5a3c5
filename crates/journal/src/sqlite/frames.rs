//! Appending to and reading from logs, in SQL.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::draft::{Draft, frame_checksum};
use super::failure::before_commit;
use super::heads;
use crate::{Error, Position, StoredFrame};

impl FromSql for Position {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = i64::column_result(value)?;
        u64::try_from(number).map(Self).map_err(|error| rusqlite::types::FromSqlError::Other(Box::new(error)))
    }
}

impl ToSql for Position {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        // No log comes near 2^63 frames; a position past it is one that no frame has.
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

/// The position of a log's last frame, and the id of the append that wrote it.
pub(super) type End<'a> = (Position, &'a str);

/// Where a log ends.
pub(super) const FIND_END: &str = "SELECT id, last, last_append_id, has_head FROM ends WHERE key = ?1";

/// Appends inside the caller's transaction. The outer error spoils the transaction; the inner one
/// comes before anything was written and leaves it as it was.
pub(super) fn append(connection: &Connection, draft: &Draft) -> rusqlite::Result<Result<Position, Error>> {
    let log = connection
        .prepare_cached(FIND_END)?
        .query_row([&draft.key], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Position>(1)?, row.get::<_, String>(2)?, row.get::<_, bool>(3)?))
        })
        .optional()?;
    let last = match &log {
        Some((_, last, append_id, _)) if *append_id == draft.append_id => return Ok(Ok(*last)),
        Some((_, last, ..)) => *last,
        None => Position(0),
    };
    if last != draft.expected {
        return Ok(Err(Error::Fenced { last }));
    }
    let position = Position(last.0 + 1);
    let end = (position, draft.append_id.as_str());
    let id = match log {
        Some((id, _, _, has_head)) => {
            // The end that stands in the head comes with the head.
            match (&draft.head, has_head) {
                (Some(_), _) => {}
                (None, true) => heads::put_end(connection, id, end)?,
                (None, false) => put_end(connection, id, end)?,
            }
            id
        }
        None => {
            connection
                .prepare_cached("INSERT INTO logs (key, last, last_append_id) VALUES (?1, ?2, ?3)")?
                .execute(params![draft.key, position, draft.append_id])?;
            connection.last_insert_rowid()
        }
    };
    if draft.floor > Position(0) {
        connection
            .prepare_cached("UPDATE logs SET floor = ?2 WHERE id = ?1 AND floor < ?2")?
            .execute(params![id, draft.floor])?;
    }
    connection
        .prepare_cached("INSERT INTO frames (log, position, checksum, frame) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![id, position, frame_checksum(&draft.key, position, &draft.frame), &draft.frame[..]])?;
    if let Some(head) = &draft.head {
        heads::put(connection, id, head, Some(end))?;
    }
    Ok(Ok(position))
}

/// The end of a log that has no head.
fn put_end(connection: &Connection, log: i64, (position, append_id): End<'_>) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE logs SET last = ?2, last_append_id = ?3 WHERE id = ?1")?
        .execute(params![log, position, append_id])?;
    Ok(())
}

pub(super) fn last(connection: &Connection, key: &str) -> Result<Position, Error> {
    Ok(find(connection, key)?.map_or(Position(0), |log| log.last))
}

/// Removes up to `limit` frames before the log's floor, inside the caller's transaction.
pub(super) fn trim(connection: &Connection, key: &str, limit: usize) -> rusqlite::Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let removed = connection
        .prepare_cached(
            "DELETE FROM frames WHERE rowid IN (SELECT frames.rowid FROM ends JOIN frames ON frames.log = ends.id \
             AND frames.position < min(ends.floor, ends.last) WHERE ends.key = ?1 ORDER BY frames.position LIMIT ?2)",
        )?
        .execute(params![key, limit])?;
    Ok(removed as u64)
}

struct Log {
    id: i64,
    last: Position,
    floor: Position,
}

fn find(connection: &Connection, key: &str) -> Result<Option<Log>, Error> {
    let find = || {
        connection
            .prepare_cached("SELECT id, last, floor FROM ends WHERE key = ?1")?
            .query_row([key], |row| Ok(Log { id: row.get(0)?, last: row.get(1)?, floor: row.get(2)? }))
            .optional()
    };
    find().map_err(|error| before_commit(&error, key))
}

/// Reads in one snapshot and proves it: every frame at its place, none missing, none too many.
pub(super) fn read(
    connection: &mut Connection,
    key: &str,
    after: Position,
    limit: usize,
) -> Result<Vec<StoredFrame>, Error> {
    let snapshot = connection.transaction().map_err(|error| before_commit(&error, key))?;
    let Some(Log { id, last, floor }) = find(&snapshot, key)? else { return Ok(Vec::new()) };
    if floor > last {
        return Err(floor_after_end(key, floor, last));
    }
    let after = Position(after.0.max(floor.0.saturating_sub(1)));
    let rows = rows_after(&snapshot, id, after, limit).map_err(|error| before_commit(&error, key))?;
    let mut frames = Vec::with_capacity(rows.len());
    let mut before = after;
    for (position, checksum, frame) in rows {
        verify(key, Position(before.0 + 1), last, position, checksum, &frame)?;
        before = position;
        frames.push(StoredFrame { position, frame: frame.into() });
    }
    if frames.len() < limit && before < last {
        return Err(missing(key, Position(before.0 + 1), last));
    }
    Ok(frames)
}

type Row = (Position, u32, Vec<u8>);

fn rows_after(connection: &Connection, log: i64, after: Position, limit: usize) -> rusqlite::Result<Vec<Row>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT position, checksum, frame FROM frames WHERE log = ?1 AND position > ?2 ORDER BY position LIMIT ?3",
        )?
        .query_map(params![log, after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

/// Checks one frame against the place it should have.
pub(super) fn verify(
    key: &str,
    wanted: Position,
    last: Position,
    position: Position,
    checksum: u32,
    frame: &[u8],
) -> Result<(), Error> {
    let damaged = |reason: String| Err(Error::Corrupt { place: format!("{key}@{position}"), reason });
    if position > last {
        return damaged(format!("a frame stands after the log's last position {last}"));
    }
    if position != wanted {
        return Err(missing(key, wanted, last));
    }
    if checksum != frame_checksum(key, position, frame) {
        return damaged("the frame's checksum is wrong".into());
    }
    Ok(())
}

pub(super) fn floor_after_end(key: &str, floor: Position, last: Position) -> Error {
    Error::Corrupt {
        place: format!("{key}@{last}"),
        reason: format!("the log's floor {floor} is after its last position"),
    }
}

pub(super) fn missing(key: &str, wanted: Position, last: Position) -> Error {
    Error::Corrupt {
        place: format!("{key}@{wanted}"),
        reason: format!("the frame is missing, the log goes on to {last}"),
    }
}
