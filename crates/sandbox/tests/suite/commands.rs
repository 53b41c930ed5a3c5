//! Commands: results, time-outs, output, ids.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use hearth_sandbox::{ExecArgs, KillArgs, Sandboxes as _};
use hearth_types::ExecId;
use tokio::time::Instant;

use super::bench::{Bench, Place, caller, code, command, resident_bytes, until};

pub async fn a_command_gives_its_output_and_code(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let result = hand.sh(&session, "echo out; echo err >&2; echo more; exit 3").await;
    assert_eq!((result.output.as_str(), result.exit_code), ("out\nerr\nmore\n", Some(3)));
    assert!(!result.timed_out && !result.truncated && result.encoding.is_none());
    let missing = hand.sh(&session, "no-such-program").await;
    assert_eq!(missing.exit_code, Some(127));
    let killed = hand.sh(&session, "kill -9 $$").await;
    assert_eq!((killed.exit_code, killed.signal.as_deref()), (Some(137), Some("SIGKILL")));
    bench.finish().await;
}

pub async fn a_command_runs_in_work_with_its_home_and_what_it_was_given(place: Place) {
    let bench = Bench::new(place).await;
    let mut hand = bench.hand(caller("acme"));
    let opened = hand.open().await;
    let session = opened.session_id;
    let work = opened.workspace_path;
    assert_eq!(hand.sh(&session, "pwd").await.output.trim(), work);
    let home = hand.sh(&session, "echo $HOME; test -d $HOME && echo there").await.output;
    assert!(home.starts_with(&work) && home.ends_with("there\n"), "{home}");
    hand.sh(&session, "mkdir -p a/b").await;
    let args = ExecArgs {
        cwd: Some("a/b".into()),
        env: Some(BTreeMap::from([("GREETING".into(), "hei då".into())])),
        stdin: Some("line\n".into()),
        ..command(&session, "pwd; echo $GREETING; cat")
    };
    let result = hand.try_exec(args).await.unwrap();
    assert_eq!(result.output, format!("{work}/a/b\nhei då\nline\n"));

    hand.caller.secrets.insert("GH_TOKEN".into(), "s3cret-value".into());
    assert_eq!(hand.sh(&session, "echo $GH_TOKEN").await.output, "s3cret-value\n");
    assert!(!format!("{:?}", hand.caller).contains("s3cret-value"));
    let grep = std::process::Command::new("grep").args(["-r", "s3cret-value"]).arg(bench.dir().join("state")).output();
    assert_eq!(grep.unwrap().status.code(), Some(1), "no secret is in the state folder");
    bench.finish().await;
}

pub async fn arguments_out_of_range_are_refused_by_name(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let base = || command(&session, "true");
    let bad = [
        ("timeout_seconds", ExecArgs { timeout_seconds: Some(0), ..base() }),
        ("timeout_seconds", ExecArgs { timeout_seconds: Some(3_601), ..base() }),
        ("max_output_bytes", ExecArgs { max_output_bytes: Some(u64::MAX), ..base() }),
        ("command", ExecArgs { command: " ".into(), ..base() }),
        ("command", ExecArgs { command: "x".repeat(200_000), ..base() }),
        ("cwd", ExecArgs { cwd: Some("../..".into()), ..base() }),
        ("env", ExecArgs { env: Some(BTreeMap::from([("A-B".into(), "1".into())])), ..base() }),
    ];
    for (field, args) in bad {
        let fault = hand.try_exec(args).await.unwrap_err();
        assert_eq!(fault.code.as_str(), "invalid_argument");
        assert_eq!(fault.details.unwrap()["field"], field);
    }
    bench.finish().await;
}

/// T4
pub async fn t4_a_command_ends_when_it_ends_and_its_input_is_empty(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let began = Instant::now();
    let result = hand.sh(&session, "sleep 300 & echo ok").await;
    assert_eq!((result.output.as_str(), result.exit_code), ("ok\n", Some(0)));
    assert_eq!(hand.sh(&session, "cat").await.exit_code, Some(0));
    assert!(began.elapsed() < Duration::from_secs(4));
    bench.finish().await;
}

/// T5, T14
pub async fn t5_a_time_out_ends_the_whole_tree(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let began = Instant::now();
    let args = ExecArgs {
        timeout_seconds: Some(1),
        ..command(&session, "echo before; trap '' TERM; (setsid sleep 98765 &); sleep 98765")
    };
    let result = hand.try_exec(args).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(result.timed_out);
    assert_eq!(result.output, "before\n");
    let left = hand.sh(&session, "grep -l '9876[5]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l").await;
    assert_eq!(left.output.trim(), "0", "{left:?}");
    bench.finish().await;
}

/// T8
pub async fn t8_endless_output_costs_the_node_nothing(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let other = bench.hand(caller("beta"));
    let quiet = other.open().await.session_id;
    let before = resident_bytes();
    let loud = || {
        let args = ExecArgs {
            timeout_seconds: Some(300),
            max_output_bytes: Some(65_536),
            ..command(&session, "yes | head -c 268435456; exit 3")
        };
        hand.try_exec(args)
    };
    let floods = join_all((0..10).map(|_| loud()));
    let meanwhile = async {
        let began = Instant::now();
        assert_eq!(other.sh(&quiet, "echo here").await.output, "here\n");
        assert!(began.elapsed() < Duration::from_secs(10));
    };
    let (results, ()) = tokio::join!(floods, meanwhile);
    for result in results {
        let result = result.unwrap();
        assert_eq!((result.truncated, result.exit_code), (true, Some(3)));
        assert_eq!((result.output.len(), result.output_bytes), (65_536, 268_435_456));
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "the node grew by {grown} bytes");
    bench.finish().await;
}

/// T12
pub async fn t12_commands_at_once_do_not_mix(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let looping = |word: &str, code: u8| {
        let line = format!("for i in $(seq 1 40); do echo {word}; sleep 0.01; done; exit {code}");
        hand.try_exec(command(&session, &line))
    };
    let slow = ExecArgs { timeout_seconds: Some(1), ..command(&session, "echo slow; sleep 60") };
    let (three, four, slow) = tokio::join!(looping("three", 3), looping("four", 4), hand.try_exec(slow));
    let (three, four, slow) = (three.unwrap(), four.unwrap(), slow.unwrap());
    assert_eq!((three.exit_code, three.output), (Some(3), "three\n".repeat(40)));
    assert_eq!((four.exit_code, four.output), (Some(4), "four\n".repeat(40)));
    assert!(slow.timed_out && slow.output == "slow\n");
    bench.finish().await;
}

/// T15
pub async fn t15_output_of_exactly_the_cap_is_whole(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let capped = |line: &str| hand.try_exec(ExecArgs { max_output_bytes: Some(10), ..command(&session, line) });
    let whole = capped("printf 1234567890").await.unwrap();
    assert_eq!((whole.output.as_str(), whole.truncated), ("1234567890", false));
    let cut = capped("printf 1234567890x").await.unwrap();
    assert_eq!((cut.output.as_str(), cut.truncated, cut.output_bytes), ("1234567890", true, 11));
    let torn = capped("printf 123456789€").await.unwrap();
    assert_eq!((torn.output.as_str(), torn.truncated), ("123456789", true));
    let bytes = capped(r"printf '\377\376'").await.unwrap();
    assert_eq!((bytes.output.as_str(), bytes.encoding.as_deref()), ("//4=", Some("base64")));
    bench.finish().await;
}

pub async fn the_same_exec_id_runs_once(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let exec_id = ExecId::generate();
    let args =
        || ExecArgs { exec_id: Some(exec_id.clone()), ..command(&session, "sleep 0.3; echo once >> log; wc -l < log") };
    let (first, second) = tokio::join!(hand.try_exec(args()), hand.try_exec(args()));
    let third = hand.try_exec(args()).await.unwrap();
    assert_eq!(first.unwrap().output, "1\n");
    assert_eq!(second.unwrap().output, "1\n");
    assert_eq!((third.output.as_str(), third.exec_id), ("1\n", exec_id.clone()));
    let other = ExecArgs { exec_id: Some(exec_id), ..command(&session, "echo another") };
    assert_eq!(code(hand.try_exec(other).await), "conflict");
    bench.finish().await;
}

pub async fn a_command_in_the_background_is_polled_and_killed(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let background = |line: &str| {
        let args = ExecArgs { background: Some(true), timeout_seconds: Some(60), ..command(&session, line) };
        hand.try_exec(args)
    };
    let begun = background("echo one; sleep 0.5; echo two; exit 5").await.unwrap();
    assert_eq!(begun.exit_code, None);
    let ended = hand.poll(&session, &begun.exec_id, 20_000).await.unwrap();
    assert_eq!((ended.output.as_str(), ended.exit_code), ("one\ntwo\n", Some(5)));

    let begun = background("echo going; sleep 300").await.unwrap();
    until("it has written", || async { hand.poll(&session, &begun.exec_id, 0).await.unwrap().output == "going\n" })
        .await;
    let args = KillArgs { session_id: session.clone(), exec_id: begun.exec_id.clone() };
    let killed = hand.node.kill(&hand.caller, args.clone()).await.unwrap();
    assert!(killed.exit_code.is_some_and(|code| code > 128), "{killed:?}");
    let again = hand.node.kill(&hand.caller, args).await.unwrap();
    assert_eq!(again.exit_code, killed.exit_code);
    let unknown = hand.poll(&session, &ExecId::generate(), 0).await;
    assert_eq!(code(unknown), "not_found");
    bench.finish().await;
}

pub async fn commands_at_once_are_bounded(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let start = || ExecArgs { background: Some(true), timeout_seconds: Some(120), ..command(&session, "sleep 100") };
    let mut running = Vec::new();
    let refused = loop {
        match hand.try_exec(start()).await {
            Ok(begun) => running.push(begun.exec_id),
            Err(fault) => break fault,
        }
        assert!(running.len() < 200, "there is no bound");
    };
    assert_eq!(refused.code.as_str(), "queue_full");
    assert!(running.len() >= 16 && refused.retry_after_ms.is_some());
    let again = ExecArgs { exec_id: Some(running[0].clone()), ..start() };
    assert_eq!(hand.try_exec(again).await.unwrap().exit_code, None, "one that runs is attached to all the same");
    let args = KillArgs { session_id: session.clone(), exec_id: running[0].clone() };
    hand.node.kill(&hand.caller, args).await.unwrap();
    until("there is room again", || async { hand.try_exec(command(&session, "true")).await.is_ok() }).await;
    bench.finish().await;
}

pub async fn a_caller_that_goes_away_leaves_its_command_running(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let exec_id = ExecId::generate();
    let args = ExecArgs { exec_id: Some(exec_id.clone()), ..command(&session, "sleep 1; echo done") };
    let gone = tokio::time::timeout(Duration::from_millis(300), hand.try_exec(args)).await;
    assert!(gone.is_err(), "the caller was to give up");
    let result = hand.poll(&session, &exec_id, 20_000).await.unwrap();
    assert_eq!((result.output.as_str(), result.exit_code), ("done\n", Some(0)));
    bench.finish().await;
}
