//! The index of heads, in SQL.

use hearth_types::{RunId, RunState, Timestamp};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::draft::{HeadDraft, head_checksum};
use super::failure::before_commit;
use crate::{Error, HeadPage, HeadQuery, RawJson, RunHead};

const PLACE: &str = "the index of runs";
const COLUMNS: &str = "run_id, tenant, subject, agent, state, root_run_id, parent_run_id, session_id, resident, \
                       created_at, wake, due_at, checksum, body";

/// Writes the row. SQLite rewrites the indexes of every column that an UPDATE names, changed or not.
/// Most frames change the state and what goes with it, some the body alone or whether the run lives,
/// and none the rest, so the narrow ones are tried first.
pub(super) fn put(connection: &Connection, log: i64, draft: &HeadDraft) -> rusqlite::Result<()> {
    const BODY: &str = "UPDATE heads SET checksum = ?15, body = ?16 WHERE log = ?1 AND run_id = ?2 AND tenant = ?3 \
        AND subject = ?4 AND agent = ?5 AND state = ?6 AND live = ?7 AND root_run_id = ?8 AND parent_run_id IS ?9 \
        AND session_id = ?10 AND resident = ?11 AND created_at = ?12 AND wake = ?13 AND due_at IS ?14";
    const STATE: &str = "UPDATE heads SET state = ?6, wake = ?13, due_at = ?14, checksum = ?15, body = ?16 \
        WHERE log = ?1 AND run_id = ?2 AND tenant = ?3 AND subject = ?4 AND agent = ?5 AND live = ?7 \
        AND root_run_id = ?8 AND parent_run_id IS ?9 AND session_id = ?10 AND resident = ?11 AND created_at = ?12";
    const ROW: &str = "INSERT OR REPLACE INTO heads (log, run_id, tenant, subject, agent, state, live, root_run_id, \
        parent_run_id, session_id, resident, created_at, wake, due_at, checksum, body) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let head = &draft.head;
    for statement in [BODY, STATE, ROW] {
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
        ])?;
        if rows > 0 {
            break;
        }
    }
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
    equals("state", query.state.map(|state| text(state.as_str())));
    equals("agent", query.agent.as_deref().map(text));
    equals("root_run_id", query.root_run_id.as_ref().map(|run| text(run.as_str())));
    equals("parent_run_id", query.parent_run_id.as_ref().map(|run| text(run.as_str())));
    equals("session_id", query.session_id.as_ref().map(|session| text(session.as_str())));
    equals("resident", query.resident.map(|resident| SqlValue::Integer(resident.into())));
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
    } else if by_tenant && query.state.is_some() {
        "heads_state"
    } else if query.live {
        if by_tenant { "heads_tenant_live" } else { "heads_live" }
    } else if by_tenant {
        if query.resident.is_some() { "heads_resident" } else { "heads_tenant" }
    } else {
        "heads_all"
    }
}

pub(super) fn waking(connection: &Connection, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
    let after = after.map_or("", RunId::as_str);
    let statement =
        "SELECT run_id FROM heads INDEXED BY heads_wake WHERE wake = 1 AND run_id > ?1 ORDER BY run_id LIMIT ?2";
    run_ids(connection, statement, params![after, i64::try_from(limit).unwrap_or(i64::MAX)])
}

pub(super) fn due(connection: &Connection, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
    let statement = "SELECT run_id FROM heads INDEXED BY heads_due WHERE due_at <= ?1 ORDER BY due_at, run_id LIMIT ?2";
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

/// How SQLite would find the page, in its own words.
#[cfg(test)]
pub(crate) fn page_plan(connection: &Connection, query: &HeadQuery) -> rusqlite::Result<String> {
    let (statement, values) = page_statement(query);
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
    let lines = explain.query_map(params_from_iter(&values), |row| row.get::<_, String>(3))?;
    Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
}
