//! Many sessions come and go, and not all in good order; afterwards nothing is left of any.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use hearth_sandbox::{ExecArgs, OpenArgs};
use tokio::time::timeout;

use super::{cli, container_is_there};
use crate::suite::bench::{Bench, Place, caller, command, resident_bytes, until};

/// Sessions at once.
const WAVE: usize = 6;
/// What a process may grow by over all cycles: allocators keep some.
const GROWTH: u64 = 64 << 20;

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

fn open_files() -> usize {
    count(Path::new("/proc/self/fd"))
}

/// One session's life, by the number of the cycle.
async fn cycle(bench: &Bench, number: usize) {
    let hand = bench.hand(caller("acme"));
    if number.is_multiple_of(6) {
        // The caller goes away before it is told the id.
        let late = Duration::from_millis((number as u64 * 7) % 60);
        timeout(late, hand.try_open(OpenArgs::default())).await.ok();
        return;
    }
    let workspace = (number % 6 == 4).then(|| format!("w{}", number % 12));
    let Ok(opened) = hand.try_open(OpenArgs { workspace, ..OpenArgs::default() }).await else { return };
    let session = opened.session_id;
    let line = "echo x > f; cat f";
    match number % 6 {
        1 => {
            // Something runs, nobody waits for it, and the close comes.
            let busy = ExecArgs { background: Some(true), ..command(&session, "trap '' TERM; sleep 50 & sleep 50") };
            hand.try_exec(busy).await.ok();
        }
        2 => {
            // The container goes away from outside.
            cli(&["rm", "-f", &format!("hearth-{session}")]);
            assert!(hand.try_exec(command(&session, line)).await.is_err());
            return;
        }
        3 => {
            // The caller of a command goes away.
            timeout(Duration::from_millis(5), hand.try_exec(command(&session, "sleep 30"))).await.ok();
        }
        _ => assert_eq!(hand.try_exec(command(&session, line)).await.unwrap().output, "x\n"),
    }
    if number.is_multiple_of(5) {
        // Left for the sweeper, or the end.
        return;
    }
    hand.close(&session).await.ok();
}

pub async fn cycles_leave_nothing_behind(place: Place) {
    let cycles = std::env::var("HEARTH_LEAK_CYCLES").map_or(100, |text| text.parse().expect("a number"));
    let mut bench = Bench::with(place, |options| {
        options.pool_size = 2;
        options.idle_ttl = Duration::from_secs(2);
    })
    .await;
    let label = format!("label=hearth.owner={}", bench.node().identity());
    let mut baseline = None;
    let mut done = 0;
    while done < cycles {
        join_all((done..(done + WAVE).min(cycles)).map(|number| cycle(&bench, number))).await;
        done += WAVE;
        if (done / WAVE).is_multiple_of(4) {
            bench.restart().await;
        }
        if baseline.is_none() && done >= cycles / 3 {
            baseline = Some((resident_bytes(), open_files()));
        }
    }
    until("abandoned sessions are reaped", || async { bench.node().sessions() == 0 }).await;
    bench.node().close_all().await.unwrap();
    let state = &bench.options.state_dir;
    for folder in ["sessions", "pool", "docker/run", "docker/egress"] {
        assert_eq!(count(&state.join(folder)), 0, "{folder}");
    }
    assert_eq!(cli(&["ps", "-aq", "--filter", &label]), "", "containers");
    assert_eq!(cli(&["network", "ls", "-q", "--filter", &label]), "", "networks");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&bench.dir().display().to_string()), "mounts");
    let (bytes, files) = baseline.expect("a third of the cycles is over");
    assert!(resident_bytes() < bytes + GROWTH, "memory: {bytes}, then {}", resident_bytes());
    assert!(open_files() < files + 40, "open files: {files}, then {}", open_files());
    bench.finish().await;
}

/// The tests' own tidiness: one that fails leaves nothing to the next, whether its node lives or not.
pub async fn a_bench_that_is_dropped_leaves_nothing_behind(place: Place, killed: bool) {
    let mut bench = Bench::new(place).await;
    let session = bench.hand(caller("acme")).open().await.session_id;
    assert!(container_is_there(&session));
    if killed {
        bench.kill();
    }
    let failed = AssertUnwindSafe(async move {
        let _bench = bench;
        panic!("as a test that fails");
    });
    assert!(failed.catch_unwind().await.is_err());
    assert!(!container_is_there(&session), "with its node killed: {killed}");
}
