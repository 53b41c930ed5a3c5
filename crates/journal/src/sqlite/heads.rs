//! The index of heads, in SQL.

use hearth_types::{RunId, RunState, Timestamp};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::draft::{HeadDraft, head_checksum};
use super::failure::before_commit;
use super::frames::End;
use crate::{Error, HeadPage, HeadQuery, RawJson, RunHead};

const PLACE: &str = "the index of runs";
const WAKING_AFTER: &str = "SELECT run_id FROM heads INDEXED BY heads_busy WHERE wake = 1 \
                            AND (tenant, created_at, run_id) > (?1, ?2, ?3) ORDER BY tenant, created_at, run_id LIMIT ?4";
/// Rows that one call of [`settle`] puts where they belong.
pub(super) const SETTLED_AT_ONCE: usize = 256;
const COLUMNS: &str = "run_id, tenant, subject, agent, state, root_run_id, parent_run_id, session_id, resident, \
                       created_at, wake, due_at, checksum, body";

const BODY: &str = "UPDATE heads SET checksum = ?15, body = ?16, last = ?17, last_append_id = ?18 WHERE log = ?1 \
    AND run_id = ?2 AND tenant = ?3 AND subject = ?4 AND agent = ?5 AND state = ?6 AND live = ?7 \
    AND root_run_id = ?8 AND parent_run_id IS ?9 AND session_id = ?10 AND resident = ?11 AND created_at = ?12 \
    AND wake = ?13 AND due_at IS ?14";
const STATE: &str = "UPDATE heads SET state = ?6, wake = ?13, due_at = ?14, checksum = ?15, body = ?16, last = ?17, \
    last_append_id = ?18 WHERE log = ?1 AND run_id = ?2 AND tenant = ?3 AND subject = ?4 AND agent = ?5 \
    AND live = ?7 AND root_run_id = ?8 AND parent_run_id IS ?9 AND session_id = ?10 AND resident = ?11 \
    AND created_at = ?12 AND (?14 IS NULL OR look_at <= ?14)";
const SOONER: &str = "UPDATE heads SET state = ?6, wake = ?13, due_at = ?14, checksum = ?15, body = ?16, \
    last = ?17, last_append_id = ?18, look_at = ?14 WHERE log = ?1 AND run_id = ?2 AND tenant = ?3 \
    AND subject = ?4 AND agent = ?5 AND live = ?7 AND root_run_id = ?8 AND parent_run_id IS ?9 \
    AND session_id = ?10 AND resident = ?11 AND created_at = ?12";
const ROW: &str = "INSERT OR REPLACE INTO heads (log, run_id, tenant, subject, agent, state, live, root_run_id, \
    parent_run_id, session_id, resident, created_at, wake, due_at, checksum, body, last, last_append_id, look_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?14)";
/// The narrowest first.
const PUTS: [&str; 4] = [BODY, STATE, SOONER, ROW];

/// Writes the row, with the end of its log where that stands in it. SQLite rewrites the indexes of every
/// column that an UPDATE names, changed or not. Most frames change the state and what goes with it, some
/// the body alone, some make it due sooner or end the run, and none change the rest, so the narrow ones
/// are tried first.
pub(super) fn put(connection: &Connection, log: i64, draft: &HeadDraft, end: Option<End<'_>>) -> rusqlite::Result<()> {
    let head = &draft.head;
    for statement in PUTS {
        let rows = connection.prepare_cached(statement)?.execute(params![
            log,
            head.run_id.as_str(),
            head.tenant,
            head.subject,
            head.agent,
            head.state.as_str(),
            !head.state.is_final(),
            head.root_run_id.as_str(),
            head.parent_run_id.as_ref().map(RunId::as_str),
            head.session_id.as_str(),
            head.resident,
            head.created_at.as_millis(),
            head.wake,
            head.due_at.map(Timestamp::as_millis),
            draft.checksum,
            head.body.text(),
            end.map(|(position, _)| position),
            end.map(|(_, append_id)| append_id),
        ])?;
        if rows > 0 {
            break;
        }
    }
    Ok(())
}

/// The end of a log whose head stays as it is.
pub(super) fn put_end(connection: &Connection, log: i64, (position, append_id): End<'_>) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE heads SET last = ?2, last_append_id = ?3 WHERE log = ?1")?
        .execute(params![log, position, append_id])?;
    Ok(())
}

pub(super) fn get(connection: &Connection, run: &RunId) -> Result<Option<RunHead>, Error> {
    // By the log, whose key is unique already: an index of its own would only cost room.
    let statement = format!("SELECT {COLUMNS} FROM heads WHERE log = (SELECT id FROM logs WHERE key = 'run/' || ?1)");
    let row = connection
        .prepare_cached(&statement)
        .and_then(|mut statement| statement.query_row([run.as_str()], |row| Ok(decode(row))).optional())
        .map_err(|error| before_commit(&error, PLACE))?;
    row.transpose()
}

pub(super) fn page(connection: &Connection, query: &HeadQuery) -> Result<HeadPage, Error> {
    let (statement, values) = page_statement(query);
    let fetch = || -> rusqlite::Result<Vec<Result<RunHead, Error>>> {
        connection.prepare_cached(&statement)?.query_map(params_from_iter(&values), |row| Ok(decode(row)))?.collect()
    };
    let rows = fetch().map_err(|error| before_commit(&error, PLACE))?;
    let mut heads = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    let more = heads.len() > query.limit as usize;
    heads.truncate(query.limit as usize);
    Ok(HeadPage { heads, more })
}

fn page_statement(query: &HeadQuery) -> (String, Vec<SqlValue>) {
    let mut conditions = Vec::new();
    let mut values: Vec<SqlValue> = Vec::new();
    let mut equals = |column: &str, value: Option<SqlValue>| {
        if let Some(value) = value {
            values.push(value);
            conditions.push(format!("{column} = ?{}", values.len()));
        }
    };
    let text = |text: &str| SqlValue::Text(text.to_owned());
    equals("tenant", query.tenant.as_deref().map(text));
    equals("subject", query.subject.as_deref().map(text));
    equals("agent", query.agent.as_deref().map(text));
    equals("root_run_id", query.root_run_id.as_ref().map(|run| text(run.as_str())));
    equals("parent_run_id", query.parent_run_id.as_ref().map(|run| text(run.as_str())));
    equals("session_id", query.session_id.as_ref().map(|session| text(session.as_str())));
    equals("resident", query.resident.map(|resident| SqlValue::Integer(resident.into())));
    if let Some(state) = query.state {
        // Said in full, since some of the indexes are of one state, or of those that are not final.
        conditions.push(format!("state = '{}' AND live = {}", state.as_str(), u8::from(!state.is_final())));
    }
    if query.live {
        conditions.push("live = 1".into());
    }
    if let Some((created_at, run)) = &query.after {
        values.push(SqlValue::Integer(created_at.as_millis()));
        values.push(text(run.as_str()));
        conditions.push(format!("(created_at, run_id) < (?{}, ?{})", values.len() - 1, values.len()));
    }
    values.push(SqlValue::Integer(i64::from(query.limit) + 1));
    let filter = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let statement = format!(
        "SELECT {COLUMNS} FROM heads INDEXED BY {} {filter} ORDER BY created_at DESC, run_id DESC LIMIT ?{}",
        index_for(query),
        values.len()
    );
    (statement, values)
}

/// The index whose entries the query admits most of. Named, because SQLite without statistics takes
/// any of those with as many columns.
fn index_for(query: &HeadQuery) -> &'static str {
    let by_tenant = query.tenant.is_some();
    if query.parent_run_id.is_some() {
        "heads_parent"
    } else if query.root_run_id.is_some() {
        "heads_root"
    } else if query.session_id.is_some() {
        "heads_session"
    } else if by_tenant && query.subject.is_some() {
        if query.live { "heads_subject_live" } else { "heads_subject" }
    } else if by_tenant && query.agent.is_some() {
        "heads_agent"
    } else if by_tenant && query.state.is_some_and(RunState::is_final) {
        "heads_final"
    } else if by_tenant && query.state == Some(RunState::Running) {
        "heads_busy"
    } else if query.live || by_tenant && query.state.is_some() {
        if by_tenant { "heads_tenant_live" } else { "heads_live" }
    } else if by_tenant {
        if query.resident.is_some() { "heads_resident" } else { "heads_tenant" }
    } else {
        "heads_all"
    }
}

pub(super) fn waking(connection: &Connection, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let Some(after) = after else {
        let first = "SELECT run_id FROM heads INDEXED BY heads_busy WHERE wake = 1 \
                     ORDER BY tenant, created_at, run_id LIMIT ?1";
        return run_ids(connection, first, params![limit]);
    };
    let place = connection
        .prepare_cached(
            "SELECT tenant, created_at FROM heads WHERE log = (SELECT id FROM logs WHERE key = 'run/' || ?1)",
        )
        .and_then(|mut statement| {
            let place = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            statement.query_row([after.as_str()], place).optional()
        })
        .map_err(|error| before_commit(&error, PLACE))?;
    // Rows are not removed, so what was listed before has one.
    let Some((tenant, created_at)) = place else { return Ok(Vec::new()) };
    run_ids(connection, WAKING_AFTER, params![tenant, created_at, after.as_str(), limit])
}

/// Whether [`settle`] has something to do before [`due`] is right.
pub(super) fn unsettled(connection: &Connection, now: Timestamp) -> Result<bool, Error> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM heads INDEXED BY heads_look WHERE look_at <= ?1 AND look_at IS NOT due_at)",
        )
        .and_then(|mut statement| statement.query_row([now.as_millis()], |row| row.get(0)))
        .map_err(|error| before_commit(&error, PLACE))
}

/// Puts up to `limit` rows that are looked at too soon where they belong; how many.
pub(super) fn settle(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<u64> {
    let settled = connection
        .prepare_cached(
            "UPDATE heads SET look_at = due_at WHERE log IN (SELECT log FROM heads INDEXED BY heads_look \
             WHERE look_at <= ?1 AND look_at IS NOT due_at LIMIT ?2)",
        )?
        .execute(params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    Ok(settled as u64)
}

/// Runs whose time has come, once all that are looked at by now are settled.
pub(super) fn due(connection: &Connection, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
    let statement = "SELECT run_id FROM heads INDEXED BY heads_look WHERE look_at <= ?1 AND due_at <= ?1 \
                     ORDER BY look_at, run_id LIMIT ?2";
    run_ids(connection, statement, params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)])
}

fn run_ids(connection: &Connection, statement: &str, values: impl rusqlite::Params) -> Result<Vec<RunId>, Error> {
    let fetch = || -> rusqlite::Result<Vec<String>> {
        connection.prepare_cached(statement)?.query_map(values, |row| row.get(0))?.collect()
    };
    let texts = fetch().map_err(|error| before_commit(&error, PLACE))?;
    texts.iter().map(|text| RunId::parse(text).map_err(|error| damaged(text, &error.to_string()))).collect()
}

fn damaged(run: &str, reason: &str) -> Error {
    Error::Corrupt { place: format!("the index row of {run}"), reason: reason.into() }
}

/// The head in a row of [`COLUMNS`], proved by its checksum.
fn decode(row: &Row<'_>) -> Result<RunHead, Error> {
    let run: String = row.get(0).map_err(|error| before_commit(&error, PLACE))?;
    let sql = |error: rusqlite::Error| damaged(&run, &error.to_string());
    let id = |text: String| RunId::parse(&text).map_err(|error| damaged(&run, &error.to_string()));
    let text = |column: usize| row.get::<_, String>(column).map_err(sql);
    let state = text(4)?;
    let body = text(13)?;
    let head = RunHead {
        run_id: id(run.clone())?,
        tenant: text(1)?,
        subject: text(2)?,
        agent: text(3)?,
        state: parse_state(&state).ok_or_else(|| damaged(&run, "the state is none of those there are"))?,
        root_run_id: id(text(5)?)?,
        parent_run_id: row.get::<_, Option<String>>(6).map_err(sql)?.map(id).transpose()?,
        session_id: text(7)?.parse().map_err(|_| damaged(&run, "the session id has not the form of one"))?,
        resident: row.get(8).map_err(sql)?,
        created_at: Timestamp::from_millis(row.get(9).map_err(sql)?),
        wake: row.get(10).map_err(sql)?,
        due_at: row.get::<_, Option<i64>>(11).map_err(sql)?.map(Timestamp::from_millis),
        body: RawJson::parse(body).map_err(|error| damaged(&run, &error.to_string()))?,
    };
    let checksum: u32 = row.get(12).map_err(sql)?;
    if checksum != head_checksum(&head) {
        return Err(damaged(&run, "the row's checksum is wrong"));
    }
    Ok(head)
}

fn parse_state(text: &str) -> Option<RunState> {
    use RunState::{AwaitingInput, Closed, Completed, Failed, Running};
    [Running, AwaitingInput, Completed, Failed, Closed].into_iter().find(|state| state.as_str() == text)
}

/// Calls `each` with every row and the id of its log, in no order.
pub(super) fn for_each(
    connection: &Connection,
    mut each: impl FnMut(i64, Result<RunHead, Error>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS}, log FROM heads"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(row.get(14)?, decode(row));
    }
    Ok(())
}

/// How SQLite would find the page, in its own words; without a query that of the runs that wake.
#[cfg(test)]
pub(crate) fn page_plan(file: &std::path::Path, query: Option<&HeadQuery>) -> rusqlite::Result<String> {
    let connection = super::schema::open_for_reading(&super::SqliteOptions::at(file)).unwrap();
    let waking = || (WAKING_AFTER.to_owned(), ["t", "5", "run_y", "9"].map(|text| SqlValue::Text(text.into())).into());
    let (statement, values) = query.map_or_else(waking, page_statement);
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
    let lines = explain.query_map(params_from_iter(&values), |row| row.get::<_, String>(3))?;
    Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::draft::Draft;
    use crate::sqlite::{SqliteOptions, frames, schema};
    use crate::{Append, LogKey, Position};

    #[test]
    fn statements_are_planned_once_whatever_is_bound_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_for_writing(&SqliteOptions::at(folder.path().join("journal.db"))).unwrap();
        for n in 0..20 {
            let head = RunHead {
                wake: n % 2 == 0,
                due_at: (n % 3 == 0).then(|| Timestamp::from_millis(1_000 - n)),
                ..crate::conformance::head("x", 1)
            };
            let append = Append {
                key: LogKey::Run(head.run_id.clone()),
                expected: Position(n.try_into().unwrap()),
                append_id: n.to_string(),
                frame: "a frame".into(),
                head: Some(head),
                floor: Position(0),
            };
            frames::append(&connection, &Draft::of(append)).unwrap().unwrap();
        }
        let statements = PUTS.into_iter().chain([frames::FIND_END]);
        let planned_anew = statements
            .map(|statement| connection.prepare_cached(statement).unwrap().get_status(StatementStatus::RePrepare));
        assert_eq!(planned_anew.collect::<Vec<_>>(), [0; 5]);
    }
}
