//! What commands get, and what becomes of their processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use hearth_sandbox_init::wire::{Answer, ExecRequest, RefusalKind, Request};
use support::{Init, eventually, exec, reported};

#[test]
fn a_command_gets_its_folder_environment_and_empty_input() {
    let init = Init::start();
    std::fs::create_dir(init.work().join("sub")).unwrap();
    let request = ExecRequest {
        cwd: Some(b"/work/sub".to_vec()),
        env: vec![(b"NAME".to_vec(), b"a b".to_vec())],
        ..exec("e", "pwd; echo \"$NAME\"; cat; echo to-stderr >&2; shopt -q login_shell || echo no login; exit 3")
    };
    let (report, output) = init.exec(request);
    let sub = init.work().join("sub");
    assert_eq!(String::from_utf8(output).unwrap(), format!("{}\na b\nto-stderr\nno login\n", sub.display()));
    assert_eq!((report.exit_code, report.signal), (Some(3), 0));
    assert!(init.work().join(".home").is_dir());
}

#[test]
fn input_is_given_in_full_and_ends() {
    let init = Init::start();
    let input = vec![b'i'; 3 * 1024 * 1024];
    let request = Request::Exec(ExecRequest { wait_ms: 60_000, ..exec("e", "wc -c") });
    let (report, output) = reported(init.ask(&request, &input));
    assert_eq!((report.exit_code, String::from_utf8(output).unwrap().trim()), (Some(0), "3145728"));
}

#[test]
fn codes_say_how_a_command_ended() {
    let init = Init::start();
    std::fs::write(init.work().join("plain"), "").unwrap();
    assert_eq!(init.sh("a", "no-such-program").0.exit_code, Some(127));
    assert_eq!(init.sh("b", "./plain").0.exit_code, Some(126));
    let (report, _) = init.sh("c", "kill -SEGV $$");
    assert_eq!((report.exit_code, report.signal), (Some(139), 11));
    assert_eq!(init.sh("d", "-not-an-option; echo $?").1.lines().last(), Some("127"));
}

// T4
#[test]
fn an_exec_ends_with_its_command_although_a_child_holds_its_output_open() {
    let init = Init::start();
    let (report, output) = init.sh("e", "sleep 300 & echo ok");
    assert_eq!((report.exit_code, output.as_str()), (Some(0), "ok\n"));
    assert!(report.duration_ms < 2_000, "{report:?}");
    let sleepers = init.running("sleep 300");
    assert_eq!(sleepers.len(), 1, "what was left behind lives on");
    init.ask(&Request::Kill { id: "e".to_owned() }, b"");
    assert!(init.running("sleep 300").is_empty());
    assert!(!init.sh("e", "sleep 300 & echo ok").0.killed, "a result that stands does not change");
}

#[test]
fn what_is_left_behind_may_go_on_writing() {
    let init = Init::start();
    init.sh("e", "(for i in $(seq 200); do head -c 65536 /dev/zero; done; echo > done; sleep 300) & ");
    eventually("its output does not block it, nor kill it", || init.work().join("done").exists());
}

// T5, T14
#[test]
fn a_time_out_takes_the_whole_tree_and_keeps_the_output() {
    let init = Init::start();
    let command = "echo partial; trap '' TERM; (setsid sleep 999 &); sleep 999";
    let (report, output) = init.exec(ExecRequest { timeout_ms: 1_000, ..exec("e", command) });
    assert!(report.timed_out);
    assert_eq!(output, b"partial\n");
    assert!(report.duration_ms < 6_000, "{report:?}");
    assert!(init.running("sleep 999").is_empty(), "the tree is dead when the answer is there");
    assert_ne!(report.exit_code, Some(0));
}

#[test]
fn a_time_out_lets_a_command_that_listens_end_by_itself() {
    let init = Init::start();
    let command = "trap 'echo bye; exit 7' TERM; sleep 999 & wait";
    let (report, output) = init.exec(ExecRequest { timeout_ms: 300, ..exec("e", command) });
    assert_eq!((report.exit_code, output.as_slice(), report.timed_out), (Some(7), &b"bye\n"[..], true));
    assert!(report.duration_ms < 1_900, "no need to wait for the grace: {report:?}");
}

#[test]
fn a_kill_ends_an_exec_that_forks_without_end() {
    let init = Init::start();
    let command = "f() { while true; do (sleep 0.05; true) & sleep 0.01; done; }; trap '' TERM; f & f & f";
    init.ask(&Request::Exec(exec("e", command)), b"");
    eventually("it forks", || init.running("sleep").len() > 3);
    let (report, _) = reported(init.ask(&Request::Kill { id: "e".to_owned() }, b""));
    assert!(report.killed && report.exit_code.is_some());
    assert!(init.running("sleep").is_empty() && init.running("bash").is_empty());
}

// T12
#[test]
fn two_at_once_keep_their_own_output_and_code() {
    let init = Init::start();
    std::thread::scope(|scope| {
        let a = scope.spawn(|| init.sh("a", "for i in $(seq 200); do echo aaaa; done; exit 3"));
        let b = scope.spawn(|| {
            let loops = exec("b", "while true; do echo bbbb; sleep 0.01; done; exit 4");
            init.exec(ExecRequest { timeout_ms: 500, ..loops })
        });
        let (report, output) = a.join().unwrap();
        assert_eq!((report.exit_code, output), (Some(3), "aaaa\n".repeat(200)));
        let (report, output) = b.join().unwrap();
        assert!(report.timed_out && report.exit_code != Some(3));
        let text = String::from_utf8(output).unwrap();
        assert!(text.lines().count() > 5 && text.lines().all(|line| line == "bbbb"));
    });
}

// T8, T15
#[test]
fn floods_are_counted_and_memory_stays_flat() {
    let init = Init::start();
    let bytes = 256 * 1024 * 1024_u64;
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..4)
            .map(|index| {
                let init = &init;
                scope.spawn(move || {
                    let command = format!("yes | head -c {bytes}; exit 3");
                    init.exec(ExecRequest { timeout_ms: 300_000, ..exec(&format!("f{index}"), &command) })
                })
            })
            .collect();
        let (report, output) = init.sh("other", "echo here");
        assert_eq!((report.exit_code, output.as_str()), (Some(0), "here\n"));
        for flood in floods {
            let (report, output) = flood.join().unwrap();
            assert_eq!((report.exit_code, report.output_bytes), (Some(3), bytes));
            assert_eq!(output.len(), 1024 * 1024);
        }
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", init.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < 16 * 1024, "peak {peak_kb} kB");
}

#[test]
fn the_same_id_attaches_again_and_never_runs_twice() {
    let init = Init::start();
    let command = "echo run >> ran; sleep 0.3; echo out";
    let first = exec("e", command);
    init.ask(&Request::Exec(first.clone()), b"");
    assert_eq!(init.exec(first.clone()).1, b"out\n");
    assert_eq!(init.exec(first.clone()).1, b"out\n");
    assert_eq!(init.refused(&Request::Exec(exec("e", "other")), b""), RefusalKind::Conflict);
    init.ask(&Request::Forget { id: "e".to_owned() }, b"");
    assert_eq!(init.refused(&Request::Exec(first), b""), RefusalKind::Evicted);
    assert_eq!(init.refused(&Request::Wait { id: "e".to_owned(), wait_ms: 0 }, b""), RefusalKind::Evicted);
    assert_eq!(std::fs::read_to_string(init.work().join("ran")).unwrap(), "run\n");
}

#[test]
fn results_past_the_bound_go_oldest_first() {
    let init = Init::start();
    for index in 0..6 {
        let request = ExecRequest { keep: 16 * 1024 * 1024, ..exec(&format!("e{index}"), "yes | head -c 15000000") };
        assert_eq!(init.exec(request).1.len(), 15_000_000, "the newest is always whole");
    }
    assert_eq!(init.refused(&Request::Wait { id: "e0".to_owned(), wait_ms: 0 }, b""), RefusalKind::Evicted);
    let (_, output) = reported(init.ask(&Request::Wait { id: "e5".to_owned(), wait_ms: 0 }, b""));
    assert_eq!(output.len(), 15_000_000);
}

#[test]
fn a_wait_ends_with_its_time_and_says_that_the_command_runs() {
    let init = Init::start();
    let request = Request::Exec(ExecRequest { wait_ms: 200, ..exec("e", "echo early; sleep 300") });
    let (report, output) = reported(init.ask(&request, b""));
    assert_eq!((report.exit_code, output.as_slice()), (None, &b"early\n"[..]));
    assert!(matches!(init.ask(&Request::Ping, b"").0, Answer::Pong { live: 1, .. }));
}

/// A comment makes the same command one for the shell.
#[test]
fn a_command_without_a_shell_is_as_one_with_it() {
    let init = Init::start();
    std::fs::create_dir(init.work().join("sub")).unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        std::fs::write(init.work().join(name), text).unwrap();
        std::fs::set_permissions(init.work().join(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    file("script", "#!/bin/sh\necho script $0 $#\n", 0o755);
    file("bare", "echo bare $#\n", 0o755);
    file("wrong", "#!/no/such/interpreter\n", 0o755);
    file("closed", "#!/bin/sh\n", 0o644);
    let work = init.work().display().to_string();
    let commands = [
        "env",
        "cat",
        "/bin/ls -a",
        "ls no-such-file",
        "id -u",
        "sleep 0",
        "readlink /proc/self/fd/0",
        "grep -c x /dev/null",
        "cat /proc/self/oom_score_adj",
        "ps -o ppid=,args= -C ps",
        "no-such-program",
        "/no/such/program a",
        "WORK/script a b",
        "WORK/bare a",
        "WORK/wrong",
        "WORK/closed",
        "WORK",
        "true",
        "false",
        "timeout -s KILL 0.1 sleep 5",
    ];
    for (n, command) in commands.iter().enumerate() {
        let command = command.replace("WORK", &work);
        let run = |how: &str, line: String| {
            let env = vec![(b"A".to_vec(), b"b c".to_vec()), (b"_".to_vec(), b"x".to_vec())];
            let request = ExecRequest { cwd: Some(b"sub".to_vec()), env, ..exec(&format!("{how}-{n}"), &line) };
            let (report, output) = init.exec(request);
            let mut lines: Vec<String> = String::from_utf8_lossy(&output).lines().map(str::to_owned).collect();
            lines.sort();
            // Whose process asked for it differs.
            lines.retain(|line| !line.contains("ps -o ppid"));
            (report.exit_code, report.signal, lines)
        };
        let (alone, in_shell) = (run("plain", command.clone()), run("shell", format!("{command} #")));
        assert_eq!(alone, in_shell, "{command}");
    }
}
