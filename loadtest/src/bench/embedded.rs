//! `send` on one embedded server, beside commits in SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_client::{Client, OpenResident, Send};
use hearth_run_core::Frame;
use rusqlite::{Connection, OpenFlags};

use super::figure::Measured;
use super::paired::{Caller, Side, crowds};
use super::{Found, Plan};
use crate::floors::sqlite::BareSqlite;
use crate::floors::{FloorKind, FloorServer, Payload, Stored};
use crate::processes::DevServer;
use crate::{Error, Within, machine};

/// What is sent, and what comes back.
pub(super) const PROMPT: &str = "what would you like to have for breakfast today?";

pub(super) async fn measure(plan: &Plan, folder: &Path, found: &mut Found) -> Result<(), Error> {
    let data = folder.join("embedded");
    let server = DevServer::start(&plan.hearth, &data, &[]).await?;
    let client = server.client()?;
    plan.say("opening 512 residents");
    let residents = Arc::new(open_residents(&client, 512).await?);
    let first = residents.first().cloned().unwrap_or_default();
    for _ in 0..100 {
        send(&client, &first).await?;
    }
    let payload = payload_of(&data.join("journal.db"), &first)?;
    plan.say(&format!("a send stores {} + {} bytes, and a row of {} twice", payload.accept, payload.end, payload.row));
    let floor = Arc::new(BareSqlite::open(&folder.join("floor.db"), payload)?);
    let file = folder.join("served.db");
    let log = folder.join("served.log");
    let served = Arc::new(FloorServer::start(FloorKind::Sqlite, Stored::InFile(&file), payload, &log).await?);

    let (mut ours, mut bare) = (Side::default(), Side::default());
    let sends: Caller = {
        let (client, residents) = (client.clone(), residents.clone());
        Arc::new(move |caller, _| {
            let (client, residents) = (client.clone(), residents.clone());
            Box::pin(async move { send(&client, &residents[usize::try_from(caller).unwrap_or(0)]).await })
        })
    };
    let commits = |log| -> Caller {
        let floor = floor.clone();
        Arc::new(move |caller, turn| {
            let floor = floor.clone();
            Box::pin(async move { floor.turn(log + caller, turn).await })
        })
    };
    let cpu = || machine::cpu_seconds(server.program.pid()).unwrap_or(0.0);
    let cpu_before = cpu();
    for _ in 0..plan.rounds(12) {
        ours.calls(60, &sends).await?;
        bare.calls(60, &commits(1_000_000)).await?;
    }
    #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
    found.put("send_cpu_ms", Measured::alone((cpu() - cpu_before) * 1e3 / ours.count().max(1) as f64));
    found.put("send_local_p50", ours.over(&bare, 0.5));
    found.put("send_local_p99", ours.over(&bare, 0.99));

    for (callers, name) in [(64, "turns_per_s_64"), (512, "turns_per_s_512")] {
        plan.say(&format!("{callers} callers"));
        // Logs of their own for each crowd: a place is used once.
        let served = served.clone();
        let turns: Caller = Arc::new(move |caller, _| {
            let served = served.clone();
            Box::pin(async move { served.turn(callers * 1_000 + caller).await })
        });
        let measured = crowds(callers, plan.rounds(6), Duration::from_millis(1_500), &sends, &turns).await;
        found.keep(name, measured);
    }
    plan.say("within the process, beside the bare commits");
    drop(server);
    let within = Within::embedded(&folder.join("within.db")).await?;
    let mut residents = Vec::new();
    for _ in 0..64 {
        residents.push(within.open().await?);
    }
    let residents = Arc::new(residents);
    let sends: Caller = Arc::new(move |caller, _| {
        let (within, residents) = (within.clone(), residents.clone());
        Box::pin(async move { within.send(&residents[usize::try_from(caller).unwrap_or(0)], PROMPT).await })
    });
    let (mut ours, mut bare) = (Side::default(), Side::default());
    for _ in 0..plan.rounds(12) {
        ours.calls(60, &sends).await?;
        bare.calls(60, &commits(2_000_000)).await?;
    }
    found.put("send_within_p50", ours.over(&bare, 0.5));
    let measured = crowds(64, plan.rounds(6), Duration::from_millis(1_500), &sends, &commits(64_000)).await;
    found.keep("turns_within_64", measured);
    Ok(())
}

/// Opens residents, a few at a time; their ids.
pub(super) async fn open_residents(client: &Client, count: usize) -> Result<Vec<String>, Error> {
    use futures::{StreamExt, TryStreamExt, stream};
    let request = OpenResident { agent: "mock".to_owned(), prompt: "begin".to_owned(), ..OpenResident::default() };
    let open = async |_| Ok(client.open(&request).await?.body.run_id.to_string());
    stream::iter(0..count).map(open).buffered(32).try_collect().await
}

pub(super) async fn send(client: &Client, resident: &str) -> Result<(), Error> {
    let request = Send { prompt: PROMPT.to_owned(), ..Send::default() };
    let answer = client.send(resident, &request).await?;
    if answer.body.output == PROMPT {
        return Ok(());
    }
    Err(Error::Answer(format!("{:?} with the output {:?}", answer.body.outcome, answer.body.output)))
}

/// Of one turn in many; what it costs is ours to bear and not the floor's.
pub(super) fn is_snapshot(frame: &[u8]) -> bool {
    Frame::decode(frame).is_ok_and(|frame| frame.is_snapshot())
}

/// How much a `send` writes, as the last turn of a run has written it.
pub(super) fn payload_of(journal: &Path, run: &str) -> Result<Payload, Error> {
    let file = Connection::open_with_flags(journal, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let log: i64 = file.query_row("SELECT id FROM logs WHERE key = 'run/' || ?1", [run], |row| row.get(0))?;
    let mut frames = file.prepare("SELECT frame FROM frames WHERE log = ?1 ORDER BY position DESC LIMIT 3")?;
    let frames: Vec<Vec<u8>> = frames.query_map([log], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let sizes: Vec<usize> = frames.iter().filter(|frame| !is_snapshot(frame)).map(Vec::len).take(2).collect();
    let row: u32 = file.query_row(
        "SELECT length(body) + length(run_id) + length(tenant) + length(subject) + length(agent) + length(state) \
         + length(root_run_id) + length(session_id) + 64 FROM heads WHERE log = ?1",
        [log],
        |row| row.get(0),
    )?;
    let [end, accept] = sizes[..] else { return Err(Error::Answer("a turn is not two frames".to_owned())) };
    let row = usize::try_from(row).unwrap_or(usize::MAX);
    Ok(Payload { request: PROMPT.len() + 14, answer: 260 + PROMPT.len(), accept, end, row })
}
