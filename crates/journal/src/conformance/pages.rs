//! Lists of heads: filters, order, cursors.

use hearth_types::{RunState, Timestamp};

use super::{Store, append_head, head, run};
use crate::{HeadQuery, Journal, Position, RunHead};

/// Rows in which every filtered column takes several values, independently of the others.
async fn varied(store: &Store) -> Vec<RunHead> {
    use RunState::{AwaitingInput, Closed, Completed, Failed, Running};
    let mut rows = Vec::new();
    for n in 0..72i64 {
        let pick = |of: i64, by: i64| n / by % of;
        let state = [Running, AwaitingInput, Completed, Failed, Closed][usize::try_from(n % 5).unwrap()];
        let row = RunHead {
            tenant: format!("t{}", pick(2, 1)),
            subject: format!("s{}", pick(3, 2)),
            agent: format!("agent/{}", pick(4, 3)),
            state,
            root_run_id: run(&format!("root{}", pick(5, 2))),
            parent_run_id: (n % 3 > 0).then(|| run(&format!("parent{}", pick(4, 1)))),
            session_id: format!("sess_{}", pick(6, 1)).parse().unwrap(),
            resident: pick(2, 4) == 0,
            // Ties, so that the id decides.
            created_at: Timestamp::from_millis(1_000 + n / 4),
            ..head(&format!("v{n:02}"), 0)
        };
        store.first().append(append_head(Position(0), "row", row.clone())).await.unwrap();
        rows.push(row);
    }
    rows.sort_by(|a, b| (b.created_at, &b.run_id).cmp(&(a.created_at, &a.run_id)));
    rows
}

/// All rows of the query, by pages of `limit`.
async fn all_pages(journal: &dyn Journal, query: &HeadQuery, limit: u32) -> Vec<RunHead> {
    let mut query = HeadQuery { limit, ..query.clone() };
    let mut rows = Vec::new();
    loop {
        let page = journal.heads(&query).await.unwrap();
        assert!(page.heads.len() <= limit as usize);
        assert!(!page.more || page.heads.len() == limit as usize, "a short page says that more follows");
        rows.extend(page.heads);
        let Some(last) = rows.last().filter(|_| page.more) else { return rows };
        query.after = Some((last.created_at, last.run_id.clone()));
    }
}

pub(super) async fn every_filter_admits_exactly_its_rows(store: &Store) {
    let rows = varied(store).await;
    let one = &rows[20];
    let with_parent = rows.iter().find(|row| row.parent_run_id.is_some()).unwrap();
    let mut filters = vec![HeadQuery::default()];
    let mut filter = |change: &dyn Fn(&mut HeadQuery)| {
        let mut query = HeadQuery::default();
        change(&mut query);
        filters.push(query);
    };
    filter(&|query| query.subject = Some(one.subject.clone()));
    filter(&|query| query.state = Some(RunState::AwaitingInput));
    filter(&|query| query.state = Some(RunState::Failed));
    filter(&|query| query.agent = Some(one.agent.clone()));
    filter(&|query| query.root_run_id = Some(one.root_run_id.clone()));
    filter(&|query| query.parent_run_id = with_parent.parent_run_id.clone());
    filter(&|query| query.session_id = Some(one.session_id.clone()));
    filter(&|query| query.resident = Some(true));
    filter(&|query| query.resident = Some(false));
    filter(&|query| query.live = true);
    let alone = filters.clone();
    // Each filter with each other one, so that no pair loses one of its two.
    for a in &alone {
        for b in &alone {
            filters.push(HeadQuery {
                subject: a.subject.clone().or(b.subject.clone()),
                state: a.state.or(b.state),
                agent: a.agent.clone().or(b.agent.clone()),
                root_run_id: a.root_run_id.clone().or(b.root_run_id.clone()),
                parent_run_id: a.parent_run_id.clone().or(b.parent_run_id.clone()),
                session_id: a.session_id.clone().or(b.session_id.clone()),
                resident: a.resident.or(b.resident),
                live: a.live || b.live,
                ..HeadQuery::default()
            });
        }
    }
    for filter in filters {
        for tenant in [None, Some(one.tenant.clone()), Some("nobody".into())] {
            let query = HeadQuery { tenant, ..filter.clone() };
            let expected: Vec<_> = rows.iter().filter(|row| query.admits(row)).cloned().collect();
            assert_eq!(all_pages(store.second(), &query, 50).await, expected, "{query:?}");
        }
    }
}

pub(super) async fn a_list_is_newest_first(store: &Store) {
    let rows = varied(store).await;
    for limit in [1, 7, 72, 500] {
        assert_eq!(all_pages(store.second(), &HeadQuery::default(), limit).await, rows, "pages of {limit}");
    }
    let whole = HeadQuery { limit: 72, ..HeadQuery::default() };
    assert!(!store.second().heads(&whole).await.unwrap().more, "nothing follows the last row");
}

pub(super) async fn a_cursor_stays_valid_while_rows_are_added(store: &Store) {
    let rows = varied(store).await;
    let mut query = HeadQuery { limit: 10, ..HeadQuery::default() };
    let mut seen = Vec::new();
    for turn in 0..100 {
        let page = store.second().heads(&query).await.unwrap();
        let last = page.heads.last().unwrap();
        query.after = Some((last.created_at, last.run_id.clone()));
        seen.extend(page.heads.into_iter().map(|row| row.run_id));
        if !page.more {
            break;
        }
        // A new run, and a change to one that was shown already and to one that was not.
        store.first().append(append_head(Position(0), "row", head(&format!("new{turn}"), 9_000 + turn))).await.unwrap();
        for row in [&rows[0], &rows[71]] {
            let key = crate::LogKey::Run(row.run_id.clone());
            let last = store.first().last(&key).await.unwrap();
            let changed = RunHead { body: serde_json::json!(turn).into(), ..row.clone() };
            store.first().append(append_head(last, &format!("change {turn}"), changed)).await.unwrap();
        }
    }
    let expected: Vec<_> = rows.into_iter().map(|row| row.run_id).collect();
    assert_eq!(seen, expected, "each row that was there at the start, once");
}
