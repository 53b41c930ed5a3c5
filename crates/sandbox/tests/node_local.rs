//! The same sessions as process groups of this host: with bubblewrap where it works, and without.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an error has failed")]

mod suite;

use std::path::PathBuf;
use std::sync::Arc;

use hearth_sandbox::SharedDriver;
use hearth_sandbox::local::{Bwrap, LocalDriver, LocalOptions};
use suite::bench::Place;

async fn driver(state_dir: PathBuf, bwrap: Bwrap) -> LocalDriver {
    let options = LocalOptions { state_dir: state_dir.join("local"), bwrap, host_env: std::env::vars().collect() };
    LocalDriver::open(options).await.unwrap()
}

async fn drivers(state_dir: PathBuf, bwrap: Bwrap) -> Vec<SharedDriver> {
    vec![Arc::new(driver(state_dir, bwrap).await)]
}

async fn bwrap() -> Option<Place> {
    let dir = tempfile::tempdir().unwrap();
    let driver = driver(dir.path().to_owned(), Bwrap::Auto).await;
    if driver.runtime() != "bwrap" {
        println!("skipped: bubblewrap does not work on this host");
        return None;
    }
    Some(Place { drivers: Box::new(|dir| Box::pin(drivers(dir, Bwrap::Auto))), contained: false })
}

async fn process() -> Option<Place> {
    Some(Place { drivers: Box::new(|dir| Box::pin(drivers(dir, Bwrap::Off))), contained: false })
}

macro_rules! on_both {
    ($($module:ident::$name:ident),* $(,)?) => {
        mod in_bwrap {
            use super::{bwrap, suite};
            crate::behaves! { bwrap; $($module::$name),* }
        }
        mod in_a_process_group {
            use super::{process, suite};
            crate::behaves! { process; $($module::$name),* }
        }
    };
}

on_both! {
    commands::a_command_gives_its_output_and_code,
    commands::a_command_runs_in_work_with_its_home_and_what_it_was_given,
    commands::arguments_out_of_range_are_refused_by_name,
    commands::t4_a_command_ends_when_it_ends_and_its_input_is_empty,
    commands::t5_a_time_out_ends_the_whole_tree,
    commands::t8_endless_output_costs_the_node_nothing,
    commands::t12_commands_at_once_do_not_mix,
    commands::t15_output_of_exactly_the_cap_is_whole,
    commands::the_same_exec_id_runs_once,
    commands::a_command_in_the_background_is_polled_and_killed,
    commands::commands_at_once_are_bounded,
    commands::a_caller_that_goes_away_leaves_its_command_running,
    files::what_is_written_is_read,
    files::t9_paths_that_leave_the_workspace_are_refused,
    files::t9_a_workspace_swapped_for_a_link_is_refused,
    files::t9_a_workspace_that_is_swapped_while_it_is_opened_is_never_another,
    files::a_durable_workspace_outlives_its_sessions,
    files::a_read_only_workspace_cannot_be_written,
    files::a_read_names_the_run_that_changed_the_file,
    life::t1_sessions_and_commands_survive_the_node,
    life::t1_what_died_meanwhile_is_cleared_away,
    life::a_second_node_on_the_same_folder_is_refused,
    life::t10_idle_counts_from_the_end_of_a_command,
    life::t10_a_command_that_nobody_waits_for_holds_its_session,
    life::t11_looking_renews_nothing,
    life::a_touch_a_read_and_a_write_renew,
    life::a_live_or_unknown_tree_holds_its_session_and_an_ended_one_closes_it,
    life::the_absolute_time_out_ends_a_session_whatever_runs,
    life::t2_opens_and_closes_finish_without_their_callers,
    life::an_idle_session_ends_when_it_is_due_and_not_at_the_next_sweep,
    life::an_open_whose_caller_goes_away_leaves_no_session_that_nobody_knows,
    life::what_a_session_holds_on_disk_is_measured_while_somebody_looks,
    life::a_close_can_be_repeated_and_an_unknown_id_is_unknown,
    life::a_tree_is_closed_at_once_and_stays_closed,
    life::a_close_that_meets_an_open_wins,
    pool::t13_a_crowd_drains_the_pool_and_the_rest_starts_cold,
    pool::a_pooled_session_is_as_any_other,
    pool::t1_a_node_that_is_killed_finds_its_pool_again,
    sharing::a_tree_shares_one_session_per_workspace,
    sharing::a_shared_session_is_not_passed_off_as_another,
    sharing::an_open_repeated_by_its_call_is_one_session,
    sharing::t16_another_tenants_session_does_not_exist,
    sharing::a_caller_without_a_tenant_opens_nothing,
    sharing::t15_what_is_refused_leaves_nothing_half_open,
    sharing::a_session_that_is_looser_than_the_run_allows_is_refused_by_its_id_too,
}

macro_rules! on_two_nodes {
    ($place:path; $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let (Some(place), Some(other)) = ($place().await, $place().await) {
                    suite::life::$name(place, other).await;
                }
            }
        )*
    };
}

on_two_nodes! {
    process;
    a_workspace_on_a_shared_storage_is_open_on_one_node,
    a_node_that_is_cut_off_lets_go_of_what_another_may_open,
    a_killed_nodes_shared_workspaces_are_let_go_and_nothing_else_is,
}
