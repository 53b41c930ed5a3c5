//! The suite that every adapter of the port passes: one property of the trait's contract per
//! function, each on a fresh store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite says what is wrong by panicking")]

mod floors;
mod heads;
mod logs;
mod pages;
mod races;

use std::any::Any;
use std::future::Future;

use bytes::Bytes;
use hearth_types::{RunId, RunState, SessionId, Timestamp};
use serde_json::json;

use crate::{Append, Journal, LogKey, Position, RunHead, SharedJournal};

/// One empty store, as several users of it see it.
pub struct Store {
    /// At least two; as independent as the adapter allows.
    pub handles: Vec<SharedJournal>,
    /// Lives as long as the store is used: a folder, a server.
    pub keep: Box<dyn Any + Send>,
}

impl Store {
    pub fn new(handles: Vec<SharedJournal>, keep: impl Any + Send) -> Self {
        assert!(handles.len() >= 2, "the suite needs two handles of the store");
        Self { handles, keep: Box::new(keep) }
    }

    fn first(&self) -> &dyn Journal {
        &*self.handles[0]
    }

    fn second(&self) -> &dyn Journal {
        &*self.handles[1]
    }
}

macro_rules! run_each {
    ($make:ident: $($module:ident :: $property:ident),* $(,)?) => {
        $(
            println!("journal conformance: {}", stringify!($property));
            let store = $make().await;
            Box::pin($module::$property(&store)).await;
        )*
    };
}

/// Runs every property, each on a store that `make` makes for it.
pub async fn run_all<F, Fut>(make: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Store>,
{
    run_each!(make:
        logs::an_empty_log_reads_as_nothing,
        logs::frames_come_back_whole_and_in_order,
        logs::an_acknowledged_frame_is_read_by_everybody,
        logs::a_repeated_append_has_no_second_effect,
        logs::logs_do_not_mix,
        logs::big_and_odd_frames_come_back_whole,
        logs::a_store_that_takes_appends_is_ready,
        races::a_wrong_expectation_is_fenced_and_changes_nothing,
        races::of_racing_appends_exactly_one_wins,
        races::an_abandoned_append_can_be_repeated,
        races::an_abandoned_append_does_not_slip_in_behind_a_successor,
        races::independent_logs_progress_side_by_side,
        floors::reads_begin_at_the_floor_whether_or_not_frames_were_removed,
        floors::without_a_floor_nothing_is_removed,
        floors::a_floor_that_would_empty_the_log_is_refused,
        floors::a_trim_is_bounded_and_goes_on_where_it_stopped,
        floors::a_trimmed_log_keeps_its_fence_its_head_and_its_last_append,
        floors::a_fenced_append_raises_no_floor,
        floors::a_log_is_read_while_it_is_trimmed,
        floors::big_frames_are_removed_and_those_that_stay_are_whole,
        heads::a_head_comes_with_its_frame,
        heads::a_fenced_append_leaves_the_head,
        heads::an_append_without_a_head_leaves_it,
        heads::a_head_of_another_run_is_refused,
        heads::a_reader_never_sees_a_head_apart_from_its_frame,
        heads::waking_runs_are_listed_page_by_page,
        heads::due_runs_are_listed_soonest_first,
        heads::the_newest_row_says_when_a_run_is_due,
        heads::any_text_survives,
        pages::every_filter_admits_exactly_its_rows,
        pages::a_list_is_newest_first,
        pages::a_cursor_stays_valid_while_rows_are_added,
    );
}

fn run(name: &str) -> RunId {
    RunId::parse(&format!("run_{name}")).unwrap()
}

fn log(name: &str) -> LogKey {
    LogKey::Run(run(name))
}

fn frame(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// An append whose id is made of its log, what it expects and its frame.
fn append(key: &LogKey, expected: Position, text: &str) -> Append {
    Append {
        key: key.clone(),
        expected,
        append_id: format!("{key}.{expected}.{text}").replace('/', "-"),
        frame: frame(text),
        head: None,
        floor: Position(0),
    }
}

fn append_head(expected: Position, text: &str, head: RunHead) -> Append {
    Append { head: Some(head.clone()), ..append(&LogKey::Run(head.run_id), expected, text) }
}

/// A running root run of tenant `t` that was created at `created_ms`.
pub(crate) fn head(name: &str, created_ms: i64) -> RunHead {
    RunHead {
        run_id: run(name),
        tenant: "t".into(),
        subject: "s".into(),
        agent: "mock".into(),
        state: RunState::Running,
        root_run_id: run(name),
        parent_run_id: None,
        session_id: SessionId::of_run(&run(name)),
        resident: false,
        created_at: Timestamp::from_millis(created_ms),
        wake: false,
        due_at: None,
        body: json!({}).into(),
    }
}

async fn texts(journal: &dyn Journal, key: &LogKey) -> Vec<String> {
    let frames = journal.read(key, Position(0), usize::MAX).await.unwrap();
    frames.iter().map(|stored| String::from_utf8(stored.frame.to_vec()).unwrap()).collect()
}
