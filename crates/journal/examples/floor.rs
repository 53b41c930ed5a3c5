//! What the SQLite journal does on this disk: appends per second, and the time of a page of a list.
//!
//! `cargo run -p hearth-journal --release --example floor [FOLDER] [ROWS]`

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, HeadQuery, Journal, LogKey, Position, RunHead, SqliteJournal, SqliteOptions};
use hearth_types::{RunId, RunState, SessionId, Timestamp};
use tokio::task::JoinSet;
use tokio::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let rows: u64 = arguments.next().map_or(Ok(100_000), |rows| rows.parse())?;
    let folder = folder.join(format!("hearth-floor-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let journal = SqliteJournal::open(SqliteOptions::at(folder.join("journal.db")))?;
    let measured = measure(&journal, rows).await;
    drop(journal);
    std::fs::remove_dir_all(&folder)?;
    measured
}

async fn measure(journal: &SqliteJournal, rows: u64) -> Outcome<()> {
    for writers in [1, 8, 64] {
        let appends = append_for(journal, writers, Duration::from_secs(3)).await?;
        println!("{writers:>3} writers: {appends:>7.0} appends/s");
    }
    let filled = fill(journal, rows).await?;
    println!("{rows} runs opened in {:.1} s", filled.as_secs_f64());
    for (name, query) in queries() {
        let began = Instant::now();
        let page = journal.heads(&query).await?;
        println!("{name:>16}: {:>3} rows in {:>6.2} ms", page.heads.len(), began.elapsed().as_secs_f64() * 1e3);
    }
    let began = Instant::now();
    let report = journal.check().await?;
    println!(
        "checked {} frames in {:.1} s, {} findings",
        report.frames,
        began.elapsed().as_secs_f64(),
        report.findings.len()
    );
    Ok(())
}

async fn append_for(journal: &SqliteJournal, writers: usize, span: Duration) -> Outcome<f64> {
    let began = Instant::now();
    let mut tasks: JoinSet<Outcome<u64>> = JoinSet::new();
    for writer in 0..writers {
        let journal = journal.clone();
        tasks.spawn(async move {
            let mut last = Position(0);
            while began.elapsed() < span {
                let head = head(&format!("run_{writers}_{writer}"), writer as u64)?;
                last = append(&journal, last, head).await?;
            }
            Ok(last.0)
        });
    }
    let mut appends = 0;
    while let Some(task) = tasks.join_next().await {
        appends += task??;
    }
    Ok(appends as f64 / began.elapsed().as_secs_f64())
}

async fn append(journal: &SqliteJournal, expected: Position, head: RunHead) -> Outcome<Position> {
    let append = Append {
        key: LogKey::Run(head.run_id.clone()),
        expected,
        append_id: format!("{}-{expected}", head.run_id),
        frame: Bytes::from(vec![b'x'; 600]),
        head: Some(head),
        floor: Position(0),
    };
    Ok(journal.append(append).await?)
}

async fn fill(journal: &SqliteJournal, rows: u64) -> Outcome<Duration> {
    const WRITERS: u64 = 256;
    let began = Instant::now();
    let mut tasks: JoinSet<Outcome<()>> = JoinSet::new();
    for writer in 0..WRITERS {
        let journal = journal.clone();
        tasks.spawn(async move {
            for n in (writer..rows).step_by(WRITERS as usize) {
                append(&journal, Position(0), head(&format!("run_row{n}"), n)?).await?;
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(began.elapsed())
}

/// One tenant of ten; in it, one run in a thousand is live, and one in a hundred of a rare agent.
fn head(name: &str, n: u64) -> Outcome<RunHead> {
    let run = RunId::parse(name)?;
    Ok(RunHead {
        tenant: format!("tenant-{}", n % 10),
        subject: format!("subject-{}", n % 1_000),
        agent: if n % 1_000 < 10 { "rare" } else { "mock" }.into(),
        state: if n % 10_000 < 10 { RunState::AwaitingInput } else { RunState::Closed },
        root_run_id: RunId::parse(&format!("run_root{}", n / 20))?,
        parent_run_id: Some(RunId::parse(&format!("run_parent{}", n / 5))?),
        session_id: SessionId::of_run(&run),
        resident: n.is_multiple_of(2),
        created_at: Timestamp::from_millis(1_764_511_200_000 + i64::try_from(n)?),
        wake: false,
        due_at: Some(Timestamp::from_millis(1_764_511_200_000)),
        body: serde_json::json!({ "turns": n, "last_turn": { "output": "x".repeat(200) } }).into(),
        run_id: run,
    })
}

fn queries() -> Vec<(&'static str, HeadQuery)> {
    let of_tenant = HeadQuery { tenant: Some("tenant-3".into()), limit: 50, ..HeadQuery::default() };
    let rare = HeadQuery { agent: Some("rare".into()), ..of_tenant.clone() };
    let middle = Timestamp::from_millis(1_764_511_200_000 + 50_000);
    vec![
        ("all", HeadQuery { limit: 50, ..HeadQuery::default() }),
        ("tenant", of_tenant.clone()),
        ("500 of tenant", HeadQuery { limit: 500, ..of_tenant.clone() }),
        (
            "from the middle",
            HeadQuery { after: RunId::parse("run_x").ok().map(|run| (middle, run)), ..of_tenant.clone() },
        ),
        ("subject", HeadQuery { subject: Some("subject-3".into()), ..of_tenant.clone() }),
        ("state", HeadQuery { state: Some(RunState::AwaitingInput), ..of_tenant.clone() }),
        ("agent", rare),
        ("root", HeadQuery { root_run_id: RunId::parse("run_root77").ok(), ..of_tenant.clone() }),
        ("parent", HeadQuery { parent_run_id: RunId::parse("run_parent77").ok(), ..of_tenant.clone() }),
        ("resident", HeadQuery { resident: Some(false), ..of_tenant.clone() }),
        ("live", HeadQuery { live: true, ..of_tenant.clone() }),
        ("live residents", HeadQuery { live: true, resident: Some(false), ..of_tenant }),
    ]
}
