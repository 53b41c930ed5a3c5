//! The file's form: its tables, their version, and how connections are set up.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{SqliteOptions, failure};
use crate::Error;

/// "Hrth", so that the file says whose it is.
const APPLICATION_ID: i64 = 0x4872_7468;
const VERSION: i64 = 3;
/// Before it, logs had no floor.
const FIRST_WITH_FLOORS: i64 = 2;
/// Before it, the end of a run's log stood apart from its head, and more indexes changed with each turn.
const FIRST_WITH_ENDS: i64 = 3;

/// `frames` is a plain table with an index rather than one clustered by log: the appends of a batch
/// then share the last page, where clustered ones would each rewrite a page of their own.
///
/// The id of a head is that of its run's log. Each index ends in the list's order, so that a page of
/// any single filter is one walk over as many entries as it shows.
///
/// What an append costs is the pages that it changes, so the end of a run's log stands in its head,
/// which changes anyway; `logs` has that of the others. Of the indexes a turn changes only
/// `heads_busy`: the runs that await input are nearly all that live, and `look_at` is no later than
/// `due_at` but may be earlier, until somebody looks.
const TABLES: &str = "
CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    last INTEGER NOT NULL,
    last_append_id TEXT NOT NULL,
    floor INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE frames (
    log INTEGER NOT NULL,
    position INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    frame BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX frames_order ON frames (log, position);
CREATE TABLE heads (
    log INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    live INTEGER NOT NULL,
    root_run_id TEXT NOT NULL,
    parent_run_id TEXT,
    session_id TEXT NOT NULL,
    resident INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    wake INTEGER NOT NULL,
    due_at INTEGER,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL,
    look_at INTEGER,
    last INTEGER,
    last_append_id TEXT
) STRICT;
CREATE INDEX heads_all ON heads (created_at, run_id);
CREATE INDEX heads_tenant ON heads (tenant, created_at, run_id);
CREATE INDEX heads_subject ON heads (tenant, subject, created_at, run_id);
CREATE INDEX heads_agent ON heads (tenant, agent, created_at, run_id);
CREATE INDEX heads_resident ON heads (tenant, resident, created_at, run_id);
CREATE INDEX heads_session ON heads (session_id, tenant, created_at, run_id);
CREATE INDEX heads_root ON heads (root_run_id, created_at, run_id);
CREATE INDEX heads_parent ON heads (parent_run_id, created_at, run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX heads_live ON heads (created_at, run_id) WHERE live = 1;
CREATE INDEX heads_tenant_live ON heads (tenant, created_at, run_id) WHERE live = 1;
CREATE INDEX heads_subject_live ON heads (tenant, subject, created_at, run_id) WHERE live = 1;
CREATE TABLE probe (pad BLOB NOT NULL) STRICT;
";

/// What version 3 has beside the tables that there were before.
const ENDS: &str = "
CREATE INDEX heads_final ON heads (tenant, state, created_at, run_id) WHERE live = 0;
CREATE INDEX heads_busy ON heads (tenant, created_at, run_id) WHERE wake = 1 OR state = 'running';
CREATE INDEX heads_look ON heads (look_at, run_id) WHERE look_at IS NOT NULL;
CREATE VIEW ends AS SELECT
    logs.id AS id,
    logs.key AS key,
    coalesce(heads.last, logs.last) AS last,
    coalesce(heads.last_append_id, logs.last_append_id) AS last_append_id,
    logs.floor AS floor,
    heads.log IS NOT NULL AS has_head
FROM logs LEFT JOIN heads ON heads.log = logs.id;
";

const TO_FLOORS: &str = "ALTER TABLE logs ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;";

const TO_ENDS: &str = "
DROP INDEX heads_state;
DROP INDEX heads_wake;
DROP INDEX heads_due;
ALTER TABLE heads ADD COLUMN look_at INTEGER;
ALTER TABLE heads ADD COLUMN last INTEGER;
ALTER TABLE heads ADD COLUMN last_append_id TEXT;
UPDATE heads SET look_at = due_at;
";

/// Opens the file for the writer; makes or refuses it by its version.
pub(super) fn open_for_writing(options: &SqliteOptions) -> Result<Connection, Error> {
    let place = options.path.display().to_string();
    let sql = |error: rusqlite::Error| failure::before_commit(&error, &place);
    let connection = connect(options).map_err(sql)?;
    admit_file(&connection, &place)?;
    let set_up = || -> rusqlite::Result<()> {
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // With FULL, a commit returns once the write-ahead log is on the disk.
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Pages that many frames touch are then written to the file once, not at every fourth MiB.
        connection.pragma_update(None, "wal_autocheckpoint", 4_096)?;
        connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
        connection.pragma_update(None, "cache_size", -32 * 1024)?;
        let page_bytes: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let pages = options.max_file_bytes.map_or(i64::from(u32::MAX - 1), |bytes| {
            i64::try_from(bytes / u64::from(page_bytes)).unwrap_or(i64::MAX).clamp(1, i64::from(u32::MAX - 1))
        });
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let steps = match version {
            0 => vec![TABLES, ENDS],
            _ if version < FIRST_WITH_FLOORS => vec![TO_FLOORS, TO_ENDS, ENDS],
            _ if version < FIRST_WITH_ENDS => vec![TO_ENDS, ENDS],
            _ => return Ok(()),
        };
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;",
            steps.concat()
        ))?;
        Ok(())
    };
    set_up().map_err(sql)?;
    sync_folder(options)?;
    Ok(connection)
}

/// Opens the file, which must be there and set up, for reading.
pub(super) fn open_for_reading(options: &SqliteOptions) -> Result<Connection, Error> {
    let open = || -> rusqlite::Result<Connection> {
        let connection = connect(options)?;
        connection.pragma_update(None, "query_only", true)?;
        // Each holds it for as long as the server runs; what is not in it is in the kernel's cache.
        connection.pragma_update(None, "cache_size", -2 * 1024)?;
        Ok(connection)
    };
    open().map_err(|error| failure::before_commit(&error, &options.path.display().to_string()))
}

fn connect(options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&options.path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    // Else a statement with a partial index in sight is planned anew for each value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn admit_file(connection: &Connection, place: &str) -> Result<(), Error> {
    let number = |name: &str| -> Result<i64, Error> {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
            .map_err(|error| failure::before_commit(&error, place))
    };
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| failure::before_commit(&error, place))?;
    let (id, version) = (number("application_id")?, number("user_version")?);
    if tables == 0 && version == 0 {
        return Ok(());
    }
    if id != APPLICATION_ID {
        return Err(Error::Corrupt { place: place.into(), reason: "this is not a journal of Hearth".into() });
    }
    if !(1..=VERSION).contains(&version) {
        return Err(Error::Unavailable {
            reason: format!(
                "{place} has version {version} of the journal's form, this program knows those up to {VERSION}; open it with the program that wrote it"
            ),
        });
    }
    Ok(())
}

/// A file is durable once its name is.
fn sync_folder(options: &SqliteOptions) -> Result<(), Error> {
    let folder = options.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| std::path::Path::new("."));
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Error::Unavailable { reason: format!("cannot sync {}: {error}", folder.display()) })
}
