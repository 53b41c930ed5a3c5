//! Peers and code that mean harm: to the init, to other execs, to files outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_sandbox_init::wire::{self, Answer, ExecRequest, RefusalKind, Request};
use rustix::process::{Pid, Signal, kill_process};
use support::{Init, ask_on, eventually, exec, receive, reported};

fn read(path: &str) -> Request {
    Request::Read { path: path.as_bytes().to_vec(), offset: 0, max_bytes: 1024 }
}

fn write(path: &str) -> Request {
    Request::Write { path: path.as_bytes().to_vec(), mode: None }
}

#[test]
fn nonsense_is_refused_or_dropped_and_others_go_on() {
    let init = Init::start();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 8], &[5, 0, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9]] {
        let mut stream = init.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
    }
    let mut stream = init.connect();
    stream.write_all(&wire::frame(&[1, 77], 0).unwrap()).unwrap();
    assert!(matches!(receive(&mut stream).0, Answer::Refused(refusal) if refusal.kind == RefusalKind::Invalid));
    assert!(matches!(ask_on(&mut stream, &Request::Ping, b"").0, Answer::Pong { .. }), "the connection is still good");
}

#[test]
fn idle_connections_do_not_keep_others_out() {
    let init = Init::start();
    let idle: Vec<_> = (0..400).map(|_| init.connect()).collect();
    assert!(matches!(init.ask(&Request::Ping, b"").0, Answer::Pong { .. }));
    drop(idle);
}

#[test]
fn claims_of_large_messages_are_bounded_together() {
    let init = Init::start();
    let claims: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = init.connect();
            stream.write_all(&wire::frame(&write("x").encode(), wire::MAX_BODY).unwrap()).unwrap();
            stream
        })
        .collect();
    let dropped = |stream: &mut std::os::unix::net::UnixStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    };
    let mut claims = claims;
    eventually("those past the bound are dropped", || {
        claims.iter_mut().filter_map(|s| dropped(s).then_some(())).count() >= 16
    });
    assert_eq!(init.sh("e", "echo ok").1, "ok\n");
}

#[test]
fn more_commands_than_may_run_are_refused_as_busy() {
    let init = Init::start();
    for index in 0..64 {
        reported(init.ask(&Request::Exec(exec(&format!("e{index}"), "sleep 300")), b""));
    }
    assert_eq!(init.refused(&Request::Exec(exec("more", "true")), b""), RefusalKind::Busy);
    init.ask(&Request::Kill { id: "e0".to_owned() }, b"");
    assert_eq!(init.sh("more", "echo ok").1, "ok\n");
}

#[test]
fn a_command_that_kills_or_stops_its_supervisor_still_ends_with_all_its_tree() {
    for signal in ["KILL", "STOP"] {
        let init = Init::start();
        let command = format!("(setsid sleep 998 &); echo hi; kill -{signal} $PPID; sleep 998");
        let (report, output) = init.exec(ExecRequest { timeout_ms: 500, ..exec("e", &command) });
        assert_eq!(output, b"hi\n", "{signal}");
        assert!(report.exit_code.is_some_and(|code| code != 0), "{signal}: {report:?}");
        assert!(init.running("sleep 998").is_empty(), "{signal}");
        assert_eq!(init.sh("next", "echo ok").1, "ok\n");
    }
}

/// Three processes wait for the next command, where code of the same user can reach them: its supervisor, what is to
/// become it, and who makes more of them.
#[test]
fn what_waits_for_a_command_may_be_killed_or_stopped() {
    let init = Init::start();
    // Whoever is missing is made anew at the next command.
    let commands = std::cell::Cell::new(0);
    let waiting = || {
        let mut found = Vec::new();
        eventually("three wait", || {
            found = init.running("hearth-sandbox-init");
            if found.len() != 3 {
                commands.set(commands.get() + 1);
                init.sh(&format!("more-{}", commands.get()), "true");
            }
            found.len() == 3
        });
        found
    };
    assert_eq!(init.sh("first", "echo ok").1, "ok\n");
    for (round, signal) in [Signal::KILL, Signal::STOP, Signal::TERM].into_iter().enumerate() {
        for hit in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 1, 2], &[2, 1, 0]] {
            let waiting = waiting();
            for index in hit {
                // The first may have taken the other along.
                kill_process(Pid::from_raw(waiting[*index]).unwrap(), signal).ok();
            }
            let request = ExecRequest { timeout_ms: 10_000, ..exec(&format!("e{round}{hit:?}"), "echo ok; exit 3") };
            let (report, output) = init.exec(request);
            // One that is killed before the init knows takes the command along, as one does that runs.
            let killed_with_it = report.exit_code == Some(128 + 9) || report.exit_code == Some(128 + 15);
            assert!(
                (report.exit_code, &*output) == (Some(3), b"ok\n") || (signal != Signal::STOP && killed_with_it),
                "{signal:?} {hit:?}: {report:?}"
            );
        }
    }
    let mut waiting = waiting();
    drop(init);
    waiting.retain(|pid| hearth_sandbox_init::tree::process(*pid).is_some());
    assert!(waiting.is_empty(), "they end with the init");
}

/// What is too large to be handed to a process that waits gets one that is forked for it.
#[test]
fn a_large_command_is_run_like_a_small_one() {
    let init = Init::start();
    for (id, bytes) in [("small", 10), ("fits", 30_000), ("large", 100_000)] {
        let command = format!("echo {} | wc -c; cat", "x".repeat(bytes));
        let request =
            ExecRequest { wait_ms: 60_000, env: vec![(b"A".to_vec(), vec![b'y'; bytes])], ..exec(id, &command) };
        let (report, output) = reported(init.ask(&Request::Exec(request), b"given"));
        assert_eq!((report.exit_code, output), (Some(0), format!("{}\ngiven", bytes + 1).into_bytes()), "{id}");
    }
}

#[test]
fn when_the_init_dies_its_commands_die_too() {
    let mut init = Init::start();
    init.ask(&Request::Exec(exec("e", "trap '' TERM; (setsid sleep 997 &); sleep 997")), b"");
    eventually("both run", || init.running("sleep 997").len() == 2);
    // The supervisor of this one, and those that wait for the next.
    eventually("the others wait", || init.running("hearth-sandbox-init").len() == 4);
    let sleepers = [init.running("sleep 997"), init.running("hearth-sandbox-init")].concat();
    kill_process(Pid::from_raw(init.pid()).unwrap(), Signal::KILL).unwrap();
    init.child.wait().unwrap();
    eventually("nobody is left", || {
        sleepers.iter().all(|pid| hearth_sandbox_init::tree::process(*pid).is_none_or(|process| process.zombie))
    });
}

#[test]
fn shutdown_and_term_kill_everything_first() {
    for by_request in [true, false] {
        let mut init = Init::start();
        init.ask(&Request::Exec(exec("e", "trap '' TERM; (setsid sleep 996 &); sleep 996")), b"");
        eventually("both run", || init.running("sleep 996").len() == 2);
        let sleepers = init.running("sleep 996");
        if by_request {
            assert_eq!(init.ask(&Request::Shutdown, b"").0, Answer::Done);
        } else {
            kill_process(Pid::from_raw(init.pid()).unwrap(), Signal::TERM).unwrap();
            init.child.wait().unwrap();
        }
        assert!(sleepers.iter().all(|pid| hearth_sandbox_init::tree::process(*pid).is_none()));
        assert_eq!(init.child.wait().unwrap().code(), Some(0));
        assert!(!init.socket().exists());
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the deadline is one of the wall clock")]
fn a_session_ends_at_its_deadline_and_when_nobody_speaks() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let soon = (now + 1_500).to_string();
    for options in [&["--deadline-ms", &soon][..], &["--idle-s", "1"]] {
        let mut init = Init::start_with(options);
        if options[0] == "--deadline-ms" {
            init.ask(&Request::Exec(exec("e", "sleep 995")), b"");
        }
        assert_eq!(init.child.wait().unwrap().code(), Some(0), "{options:?}");
    }
}

#[test]
fn a_session_whose_lease_is_not_renewed_ends_with_all_that_runs() {
    let mut init = Init::start();
    init.ask(&Request::Exec(exec("e", "sleep 994")), b"");
    assert_eq!(init.ask(&Request::Lease { ms: 300 }, b"").0, Answer::Done);
    assert_eq!(init.ask(&Request::Lease { ms: 1_500 }, b"").0, Answer::Done);
    std::thread::sleep(std::time::Duration::from_millis(700));
    // Other calls are no renewal; that the first lease was longer ago than it lasts does not count any more.
    assert!(matches!(init.ask(&Request::Ping, b"").0, Answer::Pong { live: 1, .. }));
    let sleepers = init.running("sleep 994");
    assert_eq!(init.child.wait().unwrap().code(), Some(0));
    assert!(sleepers.iter().all(|pid| hearth_sandbox_init::tree::process(*pid).is_none()));
}

#[test]
fn files_are_written_with_their_folders_and_read_in_parts() {
    let init = Init::start();
    let Answer::Written(first) =
        init.ask(&Request::Write { path: b"a/b/c.txt".to_vec(), mode: Some(0o750) }, b"0123456789").0
    else {
        panic!("not written");
    };
    let part = Request::Read { path: b"/work/a/b/c.txt".to_vec(), offset: 2, max_bytes: 3 };
    let (answer, content) = init.ask(&part, b"");
    let Answer::Slice { truncated, stamp } = answer else { panic!("not read") };
    assert_eq!((content.as_slice(), truncated, stamp), (&b"234"[..], true, first));
    let full = init.work().join("a/b/c.txt");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&full.metadata().unwrap().permissions()) & 0o777, 0o750);
    let Answer::Written(second) = init.ask(&write(full.to_str().unwrap()), b"shorter").0 else { panic!("not written") };
    assert_ne!(first, second);
    assert_eq!(std::fs::read(full).unwrap(), b"shorter");
    assert_eq!(init.refused(&read("none"), b""), RefusalKind::NotFound);
    assert_eq!(init.refused(&read("a/b"), b""), RefusalKind::Invalid);
}

// T9
#[test]
fn paths_that_lead_out_are_refused() {
    let init = Init::start();
    let outside = init.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "s3cret").unwrap();
    symlink("/", init.work().join("up")).unwrap();
    symlink(outside.join("secret"), init.work().join("link")).unwrap();
    symlink("../outside", init.work().join("near")).unwrap();
    symlink("/proc/self/root", init.work().join("magic")).unwrap();
    let deep = outside.join("secret");
    for path in [
        "../outside/secret",
        "up/etc/passwd",
        "link",
        "near/secret",
        "magic/etc/passwd",
        "/etc/passwd",
        "/work/../outside/secret",
        "a/../../outside/secret",
        deep.to_str().unwrap(),
        "..",
    ] {
        assert_eq!(init.refused(&read(path), b""), RefusalKind::Outside, "read {path}");
    }
    for path in ["up/tmp/p", "near/new/file", "link", "../p", "/tmp/p", "a/../../p"] {
        assert_eq!(init.refused(&write(path), b"x"), RefusalKind::Outside, "write {path}");
    }
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"s3cret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_cannot_hang_the_init() {
    let init = Init::start();
    init.sh("e", "mkfifo pipe");
    assert_eq!(init.refused(&read("pipe"), b""), RefusalKind::Invalid);
    assert_eq!(init.refused(&write("pipe"), b"x"), RefusalKind::Invalid);
}

/// Ends the other side of a race, also when this side has failed.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// T9
#[test]
fn a_folder_swapped_for_a_link_during_the_call_never_leads_out() {
    let init = Init::start();
    let outside = init.folder.path().join("outside");
    std::fs::create_dir_all(outside.join("d")).unwrap();
    std::fs::write(outside.join("f"), "outside").unwrap();
    let work = init.work();
    std::fs::create_dir(work.join("real")).unwrap();
    std::fs::write(work.join("real/f"), "inside").unwrap();
    symlink(&outside, work.join("evil")).unwrap();
    // There from the start, and then replaced in one step: a write never makes a folder of this name.
    symlink("real", work.join("swap")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for target in ["real", "evil"] {
                    std::fs::rename(work.join(target), work.join("x")).unwrap();
                    std::fs::rename(work.join("x"), work.join(target)).unwrap();
                    symlink(target, work.join("swap.new")).unwrap();
                    std::fs::rename(work.join("swap.new"), work.join("swap")).unwrap();
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..3_000 {
            match init.ask(&read("swap/f"), b"") {
                (Answer::Slice { .. }, content) => {
                    assert_eq!(content, b"inside");
                    inside += 1;
                }
                (Answer::Refused(_), _) => refused += 1,
                (other, _) => panic!("{other:?}"),
            }
            init.ask(&write("swap/new"), b"x");
            init.ask(&write("swap/d/deep/new"), b"x");
        }
    });
    assert!(inside > 0 && refused > 0, "the race was never lost or never won: {inside}, {refused}");
    assert!(!outside.join("new").exists() && !outside.join("d/deep").exists());
}
