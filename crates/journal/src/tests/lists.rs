//! Lists stay quick, however many rows there are.

use std::path::Path;

use hearth_types::{RunId, RunState, SessionId, Timestamp};

use crate::sqlite::page_plan;
use crate::{Append, HeadQuery, Journal, LogKey, Position, RunHead, SqliteJournal, SqliteOptions};

fn single_filters() -> Vec<HeadQuery> {
    let run = || RunId::parse("run_x").unwrap();
    let none = HeadQuery { limit: 50, ..HeadQuery::default() };
    vec![
        none.clone(),
        HeadQuery { subject: Some("s".into()), ..none.clone() },
        HeadQuery { state: Some(RunState::Failed), ..none.clone() },
        HeadQuery { state: Some(RunState::Running), ..none.clone() },
        HeadQuery { state: Some(RunState::AwaitingInput), ..none.clone() },
        HeadQuery { agent: Some("mock".into()), ..none.clone() },
        HeadQuery { root_run_id: Some(run()), ..none.clone() },
        HeadQuery { parent_run_id: Some(run()), ..none.clone() },
        HeadQuery { session_id: Some(SessionId::of_run(&run())), ..none.clone() },
        HeadQuery { resident: Some(false), ..none.clone() },
        HeadQuery { live: true, ..none },
    ]
}

fn plan(file: &Path, query: Option<&HeadQuery>) -> String {
    page_plan(file, query).unwrap()
}

/// A page is one walk along an index in the list's order: nothing is sorted, and no table is scanned.
#[tokio::test]
async fn every_single_filter_of_a_tenant_walks_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let _journal = SqliteJournal::open(SqliteOptions::at(&file)).unwrap();
    for filter in single_filters() {
        for after in [None, Some((Timestamp::from_millis(5), RunId::parse("run_y").unwrap()))] {
            let query = HeadQuery { tenant: Some("t".into()), after: after.clone(), ..filter.clone() };
            let plan = plan(&file, Some(&query));
            assert!(plan.starts_with("SEARCH heads USING INDEX heads_"), "{query:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
            let narrowed = after.is_none() || plan.contains("(created_at,run_id)<(?,?)");
            assert!(narrowed, "the cursor does not narrow the walk of {query:?}: {plan}");
        }
    }
    let waking = plan(&file, None);
    assert_eq!(waking, "SEARCH heads USING INDEX heads_busy ((tenant,created_at,run_id)>(?,?,?))");
}

/// One `send` changes the pages of its frame, its head and one index, and no others.
#[tokio::test]
async fn a_turn_changes_as_many_pages_as_it_must() {
    const TURNS: i64 = 100;
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(SqliteOptions::at(folder.path().join("journal.db"))).unwrap();
    let run = RunId::parse("run_x").unwrap();
    let mut last = Position(0);
    let mut before = 0;
    let log = folder.path().join("journal.db-wal");
    for n in 0..=TURNS * 2 {
        let runs = n % 2 == 0;
        let head = RunHead {
            state: if runs { RunState::Running } else { RunState::AwaitingInput },
            wake: runs,
            due_at: (!runs).then(|| Timestamp::from_millis(1_000 + n)),
            body: serde_json::json!({ "turns": n }).into(),
            ..crate::conformance::head("x", 1)
        };
        let append = Append {
            key: LogKey::Run(run.clone()),
            expected: last,
            append_id: n.to_string(),
            frame: "a frame".into(),
            head: Some(head),
            floor: Position(0),
        };
        last = journal.append(append).await.unwrap();
        if n == 2 {
            before = std::fs::metadata(&log).unwrap().len();
        }
    }
    let pages = (std::fs::metadata(&log).unwrap().len() - before) / 4_096;
    let each = pages as f64 / (TURNS * 2 - 2) as f64;
    assert!(each < 4.3, "{each} pages an append");
}
