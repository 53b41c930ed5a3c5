//! Lists stay quick, however many rows there are.

use std::path::Path;

use hearth_types::{RunId, RunState, SessionId, Timestamp};

use crate::sqlite::page_plan;
use crate::{HeadQuery, SqliteJournal, SqliteOptions};

fn single_filters() -> Vec<HeadQuery> {
    let run = || RunId::parse("run_x").unwrap();
    let none = HeadQuery { limit: 50, ..HeadQuery::default() };
    vec![
        none.clone(),
        HeadQuery { subject: Some("s".into()), ..none.clone() },
        HeadQuery { state: Some(RunState::Failed), ..none.clone() },
        HeadQuery { agent: Some("mock".into()), ..none.clone() },
        HeadQuery { root_run_id: Some(run()), ..none.clone() },
        HeadQuery { parent_run_id: Some(run()), ..none.clone() },
        HeadQuery { session_id: Some(SessionId::of_run(&run())), ..none.clone() },
        HeadQuery { resident: Some(false), ..none.clone() },
        HeadQuery { live: true, ..none },
    ]
}

fn plan(file: &Path, query: &HeadQuery) -> String {
    page_plan(&rusqlite::Connection::open(file).unwrap(), query).unwrap()
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
            let plan = plan(&file, &query);
            assert!(plan.starts_with("SEARCH heads USING INDEX heads_"), "{query:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
            let narrowed = after.is_none() || plan.contains("(created_at,run_id)<(?,?)");
            assert!(narrowed, "the cursor does not narrow the walk of {query:?}: {plan}");
        }
    }
}
