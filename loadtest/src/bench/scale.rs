//! One embedded server with many residents: what a parked and an active one cost, lists, restarts.

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use hearth_client::{Client, ListRuns};

use super::embedded::send;
use super::figure::Measured;
use super::paired::Side;
use super::{Found, Plan};
use crate::floors::{FloorKind, FloorServer, Payload, Stored};
use crate::latencies::middle;
use crate::processes::DevServer;
use crate::{Error, machine, seed};

/// Active ones stay active for as long as it takes to count their memory.
const STAY: [(&str, &str); 1] = [("HEARTH_PASSIVATE_AFTER_MS", "3600000")];
const PAGE: u32 = 50;

pub(super) async fn measure(plan: &Plan, folder: &Path, found: &mut Found) -> Result<(), Error> {
    let (full, empty) = (folder.join("full"), folder.join("empty"));
    plan.say(&format!("writing {} parked residents", plan.parked));
    seed::seed_folder(&full, 0..plan.parked).await?;
    found.put("restart_s", restarts(plan, &full, &empty).await?);

    let bare = DevServer::start(&plan.hearth, &empty, &STAY).await?;
    let server = DevServer::start(&plan.hearth, &full, &STAY).await?;
    let client = server.client()?;
    let memory = |server: &DevServer| machine::private_bytes(server.program.pid()).unwrap_or(0);
    pages(&bare.client()?, 50).await?;
    found.put("list_page_p99", lists(plan, &client, folder).await?);
    settle().await;
    let each = |more: u64, less: u64, count: u64| {
        #[allow(clippy::cast_precision_loss, reason = "bytes of memory")]
        let each = more.saturating_sub(less) as f64 / count.max(1) as f64;
        Measured::alone(each)
    };
    found.put("parked_bytes", each(memory(&server), memory(&bare), plan.parked));
    drop(bare);

    plan.say(&format!("waking {} of them", plan.active));
    // Some first, so that what is allocated once is not counted for each.
    wake(&client, 0..1_000).await?;
    settle().await;
    let before = memory(&server);
    wake(&client, 1_000..1_000 + plan.active).await?;
    settle().await;
    found.put("active_bytes", each(memory(&server), before, plan.active));
    Ok(())
}

/// Memory that was given up is given back a little later.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn wake(client: &Client, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    let wake = async |number| send(client, seed::resident(number).as_str()).await;
    stream::iter(numbers).map(wake).buffer_unordered(64).try_collect().await
}

/// Starts after a crash, in turns with ones on an empty folder.
async fn restarts(plan: &Plan, full: &Path, empty: &Path) -> Result<Measured, Error> {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=plan.rounds(3) {
        for (data, times) in [(full, &mut ours), (empty, &mut floor)] {
            let mut server = DevServer::start(&plan.hearth, data, &STAY).await?;
            if round > 0 {
                times.push(server.started_in.as_secs_f64());
            }
            server.program.kill();
        }
    }
    let of = |times: &[f64]| middle(times).map_or(0.0, |(middle, _)| middle);
    Ok(Measured::over(of(&ours), of(&floor)))
}

/// Pages of the list, one after the other, in turns with echoes of the same size.
async fn lists(plan: &Plan, client: &Client, folder: &Path) -> Result<Measured, Error> {
    let page = client.list_residents(&ListRuns { limit: Some(PAGE), ..ListRuns::default() }).await?;
    let payload = Payload { request: 1, answer: page.to_string().len(), accept: 0, end: 0, row: 0 };
    let echo = FloorServer::start(FloorKind::Echo, Stored::Nowhere, payload, &folder.join("echo.log")).await?;
    let (mut ours, mut floor) = (Side::default(), Side::default());
    let mut cursor = None;
    for _ in 0..plan.rounds(6) {
        ours.round(60, async |_| {
            cursor = next_page(client, cursor.take()).await?;
            Ok(())
        })
        .await?;
        floor.round(60, async |number| echo.turn(number).await).await?;
    }
    Ok(ours.over(&floor, 0.99))
}

async fn pages(client: &Client, count: u32) -> Result<(), Error> {
    let mut cursor = None;
    for _ in 0..count {
        cursor = next_page(client, cursor).await?;
    }
    Ok(())
}

async fn next_page(client: &Client, cursor: Option<String>) -> Result<Option<String>, Error> {
    let page = client.list_residents(&ListRuns { limit: Some(PAGE), cursor, ..ListRuns::default() }).await?;
    Ok(page["next_cursor"].as_str().map(str::to_owned))
}
