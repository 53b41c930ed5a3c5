//! Sessions in containers, on a real Docker Engine. Skipped, with a line that says so, where no daemon
//! or image is; with HEARTH_REQUIRE_DOCKER=1 that is a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an error has failed")]

mod engine;
mod suite;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::outside::{self, Outside};
use engine::{Relay, TestImage, cli, container_is_there, escapes, leaks};
use hearth_sandbox::docker::{DockerDriver, DockerOptions};
use hearth_sandbox::node::DEFAULT_IMAGE;
use hearth_sandbox::{ExecArgs, OpenArgs, OpenResult, SharedDriver};
use hearth_types::{Isolation, SandboxId};
use suite::bench::{Bench, Place, caller, code, command, run, until};
use tokio::time::Instant;

fn options(state_dir: PathBuf) -> DockerOptions {
    DockerOptions::new(&std::env::vars().collect(), state_dir, DEFAULT_IMAGE).unwrap()
}

async fn drivers(state_dir: PathBuf) -> Vec<SharedDriver> {
    let drivers = DockerDriver::probe(options(state_dir)).await.unwrap();
    drivers.into_iter().map(|driver| Arc::new(driver) as SharedDriver).collect()
}

/// Sessions by way of another socket.
fn through(socket: PathBuf) -> Place {
    let drivers = move |state_dir: PathBuf| {
        let options = DockerOptions { socket: socket.clone(), ..options(state_dir) };
        let drivers = async move {
            let drivers = DockerDriver::probe(options).await.unwrap();
            drivers.into_iter().map(|driver| Arc::new(driver) as SharedDriver).collect()
        };
        Box::pin(drivers) as futures::future::BoxFuture<'static, Vec<SharedDriver>>
    };
    Place { drivers: Box::new(drivers), contained: true }
}

async fn docker() -> Option<Place> {
    let dir = tempfile::tempdir().unwrap();
    match DockerDriver::probe(options(dir.path().to_owned())).await {
        Ok(_) => Some(Place { drivers: Box::new(|dir| Box::pin(drivers(dir))), contained: true }),
        Err(why) => {
            let required = std::env::var("HEARTH_REQUIRE_DOCKER").is_ok_and(|value| value == "1");
            assert!(!required, "HEARTH_REQUIRE_DOCKER is set, and {why}");
            println!("skipped: {why}");
            None
        }
    }
}

behaves! {
    docker;
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
    docker;
    a_workspace_on_a_shared_storage_is_open_on_one_node,
    a_node_that_is_cut_off_lets_go_of_what_another_may_open,
    a_killed_nodes_shared_workspaces_are_let_go_and_nothing_else_is,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_hardened() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(run("run_root", "run_root"));
    let opened = hand.open().await;
    assert_eq!((opened.isolation, opened.network.as_str(), opened.runtime.as_str()), (Isolation::L2, "none", "runc"));
    assert_eq!((opened.workspace_path.as_str(), opened.notice), ("/work", None));
    let session = opened.session_id;
    let look =
        "id -u; grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'";
    let seen = hand.sh(&session, look).await.output;
    let none = "0000000000000000";
    let expected = format!(
        "1000\nCapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n"
    );
    assert_eq!(seen, expected);
    for forbidden in [
        "touch /x",
        "touch /usr/bin/x",
        "touch /.hearth/run/x",
        "rm /.hearth/run/init.sock",
        "mount -t tmpfs x /mnt",
        "chmod u+w /.hearth/init",
    ] {
        assert_ne!(hand.sh(&session, forbidden).await.exit_code, Some(0), "{forbidden}");
    }
    let network = hand.sh(&session, "ls /sys/class/net; timeout 2 bash -c 'echo > /dev/tcp/1.1.1.1/53'").await;
    assert!(network.output.starts_with("lo\n") && network.exit_code != Some(0), "{network:?}");
    assert_eq!(hand.sh(&session, "echo 'echo ran' > /tmp/s; chmod +x /tmp/s; /tmp/s").await.output, "ran\n");
    assert_eq!(hand.sh(&session, "cat /proc/1/comm").await.output, "init\n");

    let name = format!("hearth-{session}");
    let labels = cli(&[
        "inspect",
        "-f",
        "{{json .Config.Labels}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.LogConfig.Type}}",
        &name,
    ]);
    for part in ["\"hearth.node\":\"node-bench\"", "\"hearth.root_run\":\"run_root\"", " true none"] {
        assert!(labels.contains(part), "{labels}");
    }
    assert!(labels.contains(&format!("\"hearth.session\":\"{session}\"")));
    hand.close(&session).await.unwrap();
    assert!(!container_is_there(&session));
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_processes_and_cpu_are_limited() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let args = OpenArgs { mem_mb: Some(128), pids: Some(40), cpu: Some(0.5), ..OpenArgs::default() };
    let opened = hand.try_open(args).await.unwrap();
    assert_eq!((opened.limits.mem_mb, opened.limits.pids, opened.limits.cpu), (Some(128), Some(40), Some(0.5)));
    let session = opened.session_id;
    let hungry = hand.sh(&session, "python3 -c 'x = bytearray(1 << 30)'").await;
    assert_eq!((hungry.exit_code, hungry.oom_killed), (Some(137), true), "{hungry:?}");
    assert_eq!(hand.sh(&session, "echo alive").await.output, "alive\n");
    let many = hand.sh(&session, "for i in $(seq 60); do sleep 20 & done 2>&1; true").await;
    assert!(many.output.contains("fork"), "{many:?}");
    until("the session takes commands again", || async {
        // While there is no room for a process the command is refused, and may be repeated.
        let again = hand.try_exec(command(&session, "pkill sleep; echo alive")).await;
        again.is_ok_and(|result| result.output.ends_with("alive\n"))
    })
    .await;
    let name = format!("hearth-{session}");
    let quota = cli(&["inspect", "-f", "{{.HostConfig.CpuQuota}}/{{.HostConfig.CpuPeriod}}", &name]);
    assert_eq!(quota, "50000/100000");
    bench.finish().await;
}

/// T15: refused by default (see `t15_what_is_refused_leaves_nothing_half_open`), had where it is allowed, and
/// then only to public addresses.
#[tokio::test(flavor = "multi_thread")]
async fn t15_egress_reaches_public_addresses_and_neither_the_host_nor_its_neighbours() {
    let Some(place) = docker().await else { return };
    let bench = Bench::with(place, |options| options.allow_egress = true).await;
    let hand = bench.hand(caller("acme"));
    let quiet = hand.open().await;
    assert_eq!(quiet.network, "none");
    assert_eq!(hand.sh(&quiet.session_id, "ls /sys/class/net").await.output, "lo\n");
    let args = OpenArgs { network: Some("egress".into()), ..OpenArgs::default() };
    let open = match hand.try_open(args).await {
        Ok(open) => open,
        Err(fault) => {
            // A host without a packet filter: refused and said so, never given without its fence.
            assert_eq!(fault.code.as_str(), "isolation_unavailable", "{fault}");
            println!("skipped: {fault}");
            return bench.finish().await;
        }
    };
    assert!(open.network == "egress" && !open.warm);
    assert!(open.notice.is_some_and(|notice| notice.contains("public addresses only")));
    let session = open.session_id;
    let reaches = |address: String, port: u16| {
        let (hand, session) = (&hand, &session);
        async move {
            hand.sh(session, &format!("timeout 3 bash -c 'echo > /dev/tcp/{address}/{port}'")).await.exit_code
                == Some(0)
        }
    };
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let route = hand.sh(&session, "awk '$2 == \"00000000\" { print $3 }' /proc/net/route").await.output;
    let gateway = std::net::Ipv4Addr::from(u32::from_str_radix(route.trim(), 16).unwrap().to_le_bytes());
    assert!(!reaches(gateway.to_string(), port).await, "the host");
    match Outside::open() {
        Ok(_outside) => {
            until("a public address is reached", || reaches(outside::PUBLIC.to_owned(), outside::PORT)).await;
            assert!(!reaches(outside::PRIVATE.to_owned(), outside::PORT).await, "a private range");
            assert!(!reaches("203.0.113.1".to_owned(), port).await, "the host by another address");
        }
        Err(reason) => println!("without a world outside: {reason}"),
    }
    let name = format!("name=^hearth-{session}$");
    assert_ne!(cli(&["network", "ls", "-q", "--filter", &name]), "", "a network of its own");
    let rules =
        || String::from_utf8(std::process::Command::new("iptables").arg("-S").output().unwrap().stdout).unwrap();
    let bridge = cli(&[
        "network",
        "inspect",
        "-f",
        "{{index .Options \"com.docker.network.bridge.name\"}}",
        &format!("hearth-{session}"),
    ]);
    assert!(rules().contains(&bridge));
    hand.close(&session).await.unwrap();
    assert_eq!(cli(&["network", "ls", "-q", "--filter", &name]), "", "gone with the session");
    assert!(!rules().contains(&bridge), "and its rules");
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cycles_leave_nothing_behind() {
    let Some(place) = docker().await else { return };
    leaks::cycles_leave_nothing_behind(place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_panics_leaves_no_container_behind() {
    for killed in [false, true] {
        let Some(place) = docker().await else { return };
        leaks::a_bench_that_is_dropped_leaves_nothing_behind(place, killed).await;
    }
}

macro_rules! escapes {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let Some(place) = docker().await else { return };
                escapes::$name(place).await;
            }
        )*
    };
}

escapes! {
    a_fork_bomb_stays_in_its_session,
    the_host_is_not_to_be_seen_or_touched,
    process_1_cannot_be_harmed,
    t9_a_link_that_turns_leads_nowhere,
    a_workspace_that_is_filled_is_stopped_and_can_be_emptied,
    a_workspace_that_is_filled_by_what_was_left_behind_ends_its_session,
    a_command_without_a_process_for_it_is_refused_and_can_be_repeated,
    a_command_is_told_that_memory_ran_out_also_when_only_its_child_was_killed,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_lengthen_its_own_lease() {
    let (Some(place), Some(other)) = (docker().await, docker().await) else { return };
    escapes::a_session_does_not_lengthen_its_own_lease(place, other).await;
}

/// A daemon that takes calls and answers none: whoever needs it is told within a deadline, the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_hangs_concerns_only_who_needs_it() {
    if docker().await.is_none() {
        return;
    }
    let relays = tempfile::tempdir().unwrap();
    let relay = Relay::start(relays.path());
    let bench = Bench::new(through(relay.socket.clone())).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    relay.hang(true);
    let began = Instant::now();
    let (opened, answered) = tokio::join!(hand.try_open(OpenArgs::default()), async {
        for _ in 0..20 {
            assert_eq!(hand.sh(&session, "echo on").await.output, "on\n");
        }
        began.elapsed()
    });
    assert_eq!(opened.unwrap_err().code.as_str(), "unavailable");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert!(answered < Duration::from_secs(10), "a running session is not held up: {answered:?}");
    relay.hang(false);
    until("opens work again", || async { hand.try_open(OpenArgs::default()).await.is_ok() }).await;
    bench.finish().await;
    relay.stop();
}

/// T13, without a pool: a crowd of opens is as many containers.
#[tokio::test(flavor = "multi_thread")]
async fn t13_a_crowd_of_opens_is_as_many_containers() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let opened = futures::future::join_all((0..20).map(|_| hand.open())).await;
    let ids: std::collections::BTreeSet<SandboxId> = opened.into_iter().map(|opened| opened.session_id).collect();
    assert_eq!(ids.len(), 20);
    assert!(ids.iter().all(container_is_there));
    bench.node().close_all().await.unwrap();
    assert!(!ids.iter().any(container_is_there));
    bench.finish().await;
}

/// What a member of the pool looks like to the operator, and what becomes of one that is removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_containers_is_labelled_replaced_and_fast() {
    let Some(place) = docker().await else { return };
    let bench = Bench::with(place, |options| options.pool_size = 2).await;
    let label = format!("label=hearth.owner={}", bench.node().identity());
    let containers = || cli(&["ps", "-q", "--no-trunc", "--filter", &label]).lines().count();
    until("two containers are ready", || async { containers() == 2 }).await;
    let hand = bench.hand(caller("acme"));
    let (first, _) = until_warm(&hand).await;
    assert!(container_is_there(&first.session_id), "its name is the session's");
    let name = format!("hearth-{}", first.session_id);
    let seen = cli(&["inspect", "-f", "{{index .Config.Labels \"hearth.session\"}}", &name]);
    assert_eq!(seen, first.session_id.to_string());

    until("the pool is full again", || async { containers() == 3 }).await;
    let ready = cli(&["ps", "-q", "--no-trunc", "--filter", &label]);
    let serving = cli(&["ps", "-q", "--no-trunc", "--filter", &format!("name=^/{name}$")]);
    for container in ready.lines().filter(|id| *id != serving) {
        cli(&["rm", "-f", container]);
    }
    let opened = hand.open().await;
    assert_eq!(hand.sh(&opened.session_id, "echo usable").await.output, "usable\n", "warm or cold, it works");
    until("dead members are replaced", || async { containers() == 4 }).await;

    let mut times = Vec::new();
    for _ in 0..5 {
        let (opened, took) = until_warm(&hand).await;
        times.push(took);
        hand.close(&opened.session_id).await.unwrap();
    }
    assert!(times.iter().min().is_some_and(|best| *best < Duration::from_millis(100)), "{times:?}");
    println!("warm opens: {times:?}");
    bench.finish().await;
    assert_eq!(cli(&["ps", "-aq", "--filter", &label]), "", "nothing is left");
}

/// Opens until one comes from the pool, which may be on its way to be filled.
async fn until_warm(hand: &suite::bench::Hand<'_>) -> (OpenResult, Duration) {
    for _ in 0..50 {
        let began = Instant::now();
        let opened = hand.open().await;
        if opened.warm {
            return (opened, began.elapsed());
        }
        hand.close(&opened.session_id).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("no open was warm");
}

/// T3
#[tokio::test(flavor = "multi_thread")]
async fn t3_two_nodes_on_one_daemon_leave_each_other_alone() {
    let (Some(place_a), Some(place_b)) = (docker().await, docker().await) else { return };
    let a = Bench::new(place_a).await;
    let on_a = a.hand(caller("acme"));
    let session = on_a.open().await.session_id;
    let args =
        ExecArgs { background: Some(true), timeout_seconds: Some(60), ..command(&session, "sleep 6; echo done") };
    let exec_id = on_a.try_exec(args).await.unwrap().exec_id;
    // The same name, even: whose a container is, is not in names.
    let b = Bench::with(place_b, |options| options.idle_ttl = Duration::from_secs(1)).await;
    let on_b = b.hand(caller("acme"));
    let own = on_b.open().await.session_id;
    until("B has reaped its own", || async { on_b.listed().await.is_empty() }).await;
    until("its container is gone", || async { !container_is_there(&own) }).await;
    assert_eq!(code(on_b.try_exec(command(&session, "true")).await), "not_found");
    let drivers = (b.place.drivers)(b.options.state_dir.clone()).await;
    assert!(drivers[0].stop(&session).await.is_err(), "not even when it is told to");
    assert_eq!(on_a.poll(&session, &exec_id, 20_000).await.unwrap().output, "done\n");
    a.finish().await;
    b.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_from_outside_is_a_lost_session() {
    let Some(place) = docker().await else { return };
    let bench = Bench::with(place, |options| options.max_sessions = std::num::NonZeroUsize::MIN).await;
    let hand = bench.hand(run("run_root", "run_root"));
    let first = hand.workspace("build").await.session_id;
    cli(&["rm", "-f", &format!("hearth-{first}")]);
    let fault = hand.try_exec(command(&first, "true")).await.unwrap_err();
    assert_eq!((fault.code.as_str(), &fault.details.unwrap()["workspace"]), ("session_lost", &"build".into()));
    assert!(fault.message.contains("build"));
    let second = hand.workspace("build").await;
    assert!(!second.warm && second.session_id != first, "its place is free");

    cli(&["kill", &format!("hearth-{}", second.session_id)]);
    let third = hand.workspace("build").await;
    assert!(!third.warm && third.session_id != second.session_id, "an open finds out too");

    let running = hand.try_exec(command(&third.session_id, "sleep 60"));
    let removed = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cli(&["rm", "-f", &format!("hearth-{}", third.session_id)]);
    };
    let (result, ()) = tokio::join!(running, removed);
    assert_eq!(code(result), "session_lost");

    let fourth = hand.workspace("build").await.session_id;
    cli(&["rm", "-f", &format!("hearth-{fourth}")]);
    until("the sweeper finds out", || async { hand.listed().await.is_empty() }).await;
    bench.finish().await;
}

/// T6
#[tokio::test(flavor = "multi_thread")]
async fn t6_the_images_environment_stays() {
    let Some(place) = docker().await else { return };
    let image = TestImage::build(
        "t6",
        "USER root\nRUN mkdir -p /opt/tool/bin && ln -s /usr/bin/cargo /opt/tool/bin/mycargo && echo 'PATH=/broken' > /etc/profile\nENV PATH=/opt/tool/bin:/usr/bin:/bin TOOL_HOME=/opt/tool",
    );
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.try_open(image.open()).await.unwrap().session_id;
    let seen = hand.sh(&session, "echo $PATH; echo $TOOL_HOME; command -v mycargo").await;
    let lines: Vec<&str> = seen.output.lines().collect();
    assert!(lines[0].ends_with(":/opt/tool/bin:/usr/bin:/bin"), "{seen:?}");
    assert_eq!(lines[1..], ["/opt/tool", "/opt/tool/bin/mycargo"]);
    let installed = "mkdir -p $HOME/.local/bin && printf '#!/bin/sh\\necho mine\\n' > $HOME/.local/bin/mine && chmod +x $HOME/.local/bin/mine";
    hand.sh(&session, installed).await;
    assert_eq!(hand.sh(&session, "mine").await.output, "mine\n", "user-level installs are on the path");
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_not_fetched() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let args = OpenArgs { image: Some("hearth-test-none:1".into()), ..OpenArgs::default() };
    let fault = hand.try_open(args).await.unwrap_err();
    assert_eq!(fault.code.as_str(), "not_found");
    assert!(fault.message.contains("hearth-test-none:1"));
    assert!(hand.listed().await.is_empty());
    let records = std::fs::read_dir(bench.options.state_dir.join("sessions")).unwrap().count();
    assert_eq!(records, 0);
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_down_makes_calls_unavailable_and_loses_nothing() {
    if docker().await.is_none() {
        return;
    }
    let relays = tempfile::tempdir().unwrap();
    let relay = Relay::start(relays.path());
    let place = through(relay.socket.clone());
    let bench = Bench::with(place, |options| options.max_sessions = std::num::NonZeroUsize::new(2).unwrap()).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    relay.stop();
    let began = Instant::now();
    for _ in 0..3 {
        let fault = hand.try_open(OpenArgs::default()).await.unwrap_err();
        assert_eq!(fault.code.as_str(), "unavailable", "{fault}");
        assert!(fault.retry_after_ms.is_some() && began.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(hand.sh(&session, "echo still here").await.output, "still here\n", "a running session needs no daemon");
    assert_eq!(code(hand.close(&session).await), "unavailable");
    let relay = Relay::start(relays.path());
    until("the sweeper has finished what the daemon could not", || async { !container_is_there(&session) }).await;
    until("and every place is free", || async {
        std::fs::read_dir(bench.options.state_dir.join("sessions")).unwrap().count() == 0
    })
    .await;
    bench.finish().await;
    relay.stop();
}

/// A container of this node that no record speaks of, as after a state that was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_record_is_removed_at_the_start() {
    let Some(place) = docker().await else { return };
    let mut bench = Bench::new(place).await;
    let session = bench.hand(caller("acme")).open().await.session_id;
    bench.kill();
    std::fs::remove_file(bench.options.state_dir.join(format!("sessions/{session}.json"))).unwrap();
    assert!(container_is_there(&session));
    bench.restart().await;
    until("it is removed", || async { !container_is_there(&session) }).await;
    bench.finish().await;
}
