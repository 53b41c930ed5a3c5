//! What hostile code tries, each with the evidence that it stayed where it was. Its memory, its output, a full
//! tmpfs and paths that climb are in `tests/docker.rs` and the suite.

use std::time::Duration;

use hearth_sandbox::{ExecArgs, KillArgs, OpenArgs, Sandboxes as _};
use hearth_sandbox_init::wire::{Request, frame};
use hearth_types::ExecId;
use tokio::time::Instant;

use crate::suite::bench::{Bench, Place, caller, code, command, until};

pub async fn a_fork_bomb_stays_in_its_session(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let args = OpenArgs { pids: Some(64), ..OpenArgs::default() };
    let (bombed, other) = (hand.try_open(args).await.unwrap().session_id, hand.open().await.session_id);
    let bomb = ExecArgs { timeout_seconds: Some(2), ..command(&bombed, "b() { b | b & }; b; sleep 60") };
    let (bomb, quiet) = tokio::join!(hand.try_exec(bomb), hand.try_exec(command(&other, "echo calm")));
    assert!(bomb.unwrap().timed_out);
    assert_eq!(quiet.unwrap().output, "calm\n", "another session answers meanwhile");
    until("nothing of it is left, and its session answers", || async {
        let left = hand.try_exec(command(&bombed, "ps -e --no-headers | wc -l")).await;
        left.is_ok_and(|left| left.output.trim().parse::<u32>().is_ok_and(|count| count < 10))
    })
    .await;
    // One that a command leaves behind as it ends takes every process of the session, and can still be ended.
    let left = hand.sh(&bombed, "b() { b | b & }; b").await.exec_id;
    until("no process is left for a command", || async {
        hand.try_exec(command(&bombed, "true")).await.is_err_and(|fault| fault.message.contains("sandbox_kill"))
    })
    .await;
    hand.node.kill(&hand.caller, KillArgs { session_id: bombed.clone(), exec_id: left }).await.unwrap();
    until("its session answers again", || async {
        hand.try_exec(command(&bombed, "echo alive")).await.is_ok_and(|result| result.output == "alive\n")
    })
    .await;
    bench.finish().await;
}

pub async fn the_host_is_not_to_be_seen_or_touched(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    for probe in [
        "head -c 1 /proc/kcore",
        "echo x > /proc/sys/kernel/hostname",
        "echo '|/work/x' > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "head -c 1 /dev/mem",
        "ls /dev/sd* /dev/vd* /dev/nvme* /dev/kvm /dev/fuse",
        "mknod /tmp/disk b 8 0",
        "cat /proc/1/environ | grep -q .",
        "ls /proc/1/root/ | grep -q .",
        "ls /proc/1/fd | grep -q .",
        // Nor of those that wait for the next command.
        "for p in /proc/[0-9]*; do readlink $p/exe; done | grep -q init",
        "ls /var/run/docker.sock",
        "unshare -r true",
        "mount -t proc proc /mnt",
        "chroot / true",
        "nsenter -t 1 -m true",
        "dmesg",
        "su -c true",
        "echo 1 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
        "cat /etc/shadow",
    ] {
        let seen = hand.sh(&session, probe).await;
        assert_ne!(seen.exit_code, Some(0), "{probe}: {seen:?}");
    }
    let processes = hand.sh(&session, "ls /proc | grep -c '^[0-9]'").await.output;
    assert!(processes.trim().parse::<u32>().unwrap() < 10, "it sees its own processes only: {processes}");
    let leak = hand.sh(&session, "env; cat /proc/mounts").await.output;
    let host = bench.dir().display().to_string();
    assert!(!leak.lines().any(|line| line.starts_with("/") && line.contains(&host)), "{leak}");
    bench.finish().await;
}

pub async fn process_1_cannot_be_harmed(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    for signal in ["KILL", "STOP", "TERM", "INT", "HUP", "QUIT", "SEGV", "ABRT", "USR1", "CHLD", "PIPE"] {
        hand.sh(&session, &format!("kill -{signal} 1")).await;
        assert_eq!(hand.sh(&session, "echo alive").await.output, "alive\n", "after {signal}");
    }
    hand.sh(&session, "kill -9 -1").await;
    assert_eq!(hand.sh(&session, "echo alive").await.output, "alive\n", "after a kill of everything");
    // Its socket is reached from inside, by anything.
    let flood = "import socket, os\n\
         kept = []\n\
         for i in range(400):\n\
         \x20   s = socket.socket(socket.AF_UNIX)\n\
         \x20   s.settimeout(1)\n\
         \x20   try:\n\
         \x20       s.connect('/.hearth/run/init.sock')\n\
         \x20       s.send(os.urandom(64) if i % 2 else b'\\xff' * 8)\n\
         \x20       kept.append(s)\n\
         \x20   except OSError:\n\
         \x20       pass\n\
         print(len(kept) > 0)\n";
    hand.write(&session, "flood.py", flood).await.unwrap();
    let flooded = hand.try_exec(ExecArgs { timeout_seconds: Some(20), ..command(&session, "python3 flood.py") }).await;
    println!("a flood of its socket: {flooded:?}");
    until("it answers after a flood of its socket", || async {
        hand.try_exec(command(&session, "echo alive")).await.is_ok_and(|result| result.output == "alive\n")
    })
    .await;
    bench.finish().await;
}

/// T9: a link that leads inside and outside in turn while the node reads and writes through it.
pub async fn t9_a_link_that_turns_leads_nowhere(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    hand.sh(&session, "mkdir real; echo mine > real/passwd; ln -s real d").await;
    let swap = "while true; do ln -sfn /etc t; mv -T t d; ln -sfn real t; mv -T t d; done";
    let args = ExecArgs { background: Some(true), timeout_seconds: Some(60), ..command(&session, swap) };
    let exec_id = hand.try_exec(args).await.unwrap().exec_id;
    let until = Instant::now() + Duration::from_secs(5);
    let mut reads = 0;
    while Instant::now() < until {
        if let Ok(seen) = hand.read(&session, "d/passwd").await {
            assert_eq!(seen.content, "mine\n", "never what the link leads to");
            reads += 1;
        }
        hand.write(&session, "d/made", "x").await.ok();
    }
    assert!(reads > 0, "none of the reads met the folder inside");
    hand.node.close_all().await.unwrap();
    drop(exec_id);
    bench.finish().await;
}

/// A durable workspace has no size that the kernel keeps; it is measured, and what fills it is ended.
pub async fn a_workspace_that_is_filled_is_stopped_and_can_be_emptied(place: Place) {
    let bench = Bench::with(place, |options| options.max_workspace_mb = 24).await;
    let hand = bench.hand(caller("acme"));
    let opened = hand.workspace("full").await;
    assert!(opened.notice.is_some_and(|notice| notice.contains("24 MiB")), "it is said");
    let session = opened.session_id;
    let fill = "i=0; while true; do head -c 4194304 /dev/zero > f$i; i=$((i+1)); sleep 0.3; done";
    let began = Instant::now();
    let filled = hand.try_exec(ExecArgs { timeout_seconds: Some(60), ..command(&session, fill) }).await.unwrap();
    assert!(!filled.timed_out && filled.exit_code != Some(0), "it was ended: {filled:?}");
    assert!(began.elapsed() < Duration::from_secs(45));
    assert_eq!(code(hand.write(&session, "more", "x").await), "quota_exceeded");
    assert_eq!(hand.sh(&session, "rm -f f*; echo room").await.output, "room\n", "room can be made");
    until("it takes writes again", || async { hand.write(&session, "more", "x").await.is_ok() }).await;
    bench.finish().await;
}

/// What a command has left behind answers to no command, and is ended with its session.
pub async fn a_workspace_that_is_filled_by_what_was_left_behind_ends_its_session(place: Place) {
    let bench = Bench::with(place, |options| options.max_workspace_mb = 24).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.workspace("full").await.session_id;
    // A command that has ended by itself leaves nothing behind.
    hand.sh(&session, "head -c 31457280 /dev/zero > once").await;
    until("it is found too big", || async { hand.write(&session, "more", "x").await.is_err() }).await;
    assert_eq!(hand.sh(&session, "rm once; echo room").await.output, "room\n");
    let fill = "(setsid sh -c 'while :; do head -c 2097152 /dev/zero >> f; sleep 0.3; done' > /dev/null 2>&1 &)";
    assert_eq!(hand.sh(&session, fill).await.exit_code, Some(0), "the command has ended");
    until("the session is ended", || async { !hand.listed().await.contains(&session) }).await;
    let lost = hand.try_exec(command(&session, "exit 0")).await.unwrap_err();
    assert_eq!(lost.details.unwrap()["reason"], "overgrown");
    let next = hand.workspace("full").await.session_id;
    assert_eq!(hand.sh(&next, "rm f; echo room").await.output, "room\n", "the workspace is kept, and room can be made");
    bench.finish().await;
}

/// A session whose node is dead ends with its lease, whatever its own code says to the init.
pub async fn a_session_does_not_lengthen_its_own_lease(place: Place, other: Place) {
    let mut bench = Bench::with(place, |options| options.name = "node-a".to_owned()).await;
    let root = bench.options.workspace_root.clone();
    let second = Bench::with(other, |options| {
        options.name = "node-b".to_owned();
        options.workspace_root = root.clone();
    })
    .await;
    let lease = Duration::from_secs(4);
    let until_then = Instant::now() + lease;
    bench.node().registered(until_then).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.workspace("code").await.session_id;
    let message = frame(&Request::Lease { ms: 3_600_000 }.encode(), 0).unwrap();
    let bytes: String = message.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let script = format!(
        "use IO::Socket::UNIX; while (1) {{ my $s = IO::Socket::UNIX->new(Peer => '/.hearth/run/init.sock'); \
         if ($s) {{ syswrite $s, \"{bytes}\"; sysread $s, my $said, 999; $said =~ tr/ -~//cd; open my $f, '>', 'said'; print $f $said; close $f; }} \
         open my $t, '>', 'tick'; print $t ++$n; close $t; select undef, undef, undef, 0.05; }}"
    );
    hand.write(&session, "longer.pl", &script).await.unwrap();
    let loops = ExecArgs { background: Some(true), ..command(&session, "perl longer.pl") };
    hand.try_exec(loops).await.unwrap();
    let said = || hand.read(&session, "said");
    until("the init has answered", || async { said().await.is_ok_and(|said| said.size > 0) }).await;
    let said = said().await.unwrap();
    assert!(said.content.contains("how long it may go on"), "it was refused: {said:?}");
    drop(hand);
    bench.kill();
    tokio::time::sleep_until(until_then).await;
    let tick = || std::fs::read(root.as_ref().unwrap().join("acme/code/tick")).unwrap();
    let mut last = Vec::new();
    until("nothing runs in it any more", || {
        let now = tick();
        let still = std::mem::replace(&mut last, now.clone()) == now;
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            still
        }
    })
    .await;
    bench.restart().await;
    assert_eq!(code(bench.hand(caller("acme")).try_exec(command(&session, "true")).await), "session_lost");
    bench.finish().await;
    second.finish().await;
}

/// At the limit of processes a command is refused before it has done anything, and can be asked for again.
pub async fn a_command_without_a_process_for_it_is_refused_and_can_be_repeated(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.try_open(OpenArgs { pids: Some(8), ..OpenArgs::default() }).await.unwrap().session_id;
    // With the init, a supervisor and the shell: from room for a command to none for its supervisor.
    for sleeps in 2..=5 {
        let line = format!("for n in $(seq {sleeps}); do sleep 60 & done; : > full; wait");
        let filler = ExecArgs { background: Some(true), ..command(&session, &line) };
        let filler = hand.try_exec(filler).await.unwrap().exec_id;
        until("the session is filled", || async { hand.read(&session, "full").await.is_ok() }).await;
        let wanted = ExecArgs { exec_id: Some(ExecId::generate()), ..command(&session, "echo once >> log; rm full") };
        let refused = match hand.try_exec(wanted.clone()).await {
            Ok(result) => (result.exit_code != Some(0)).then(|| format!("{result:?}")),
            Err(fault) => {
                assert_eq!(fault.code.as_str(), "queue_full", "{fault}");
                assert!(fault.code.retryable());
                None
            }
        };
        // The shell itself may find no room for what it starts, and says so.
        assert!(refused.is_none_or(|said| said.contains("fork")), "with {sleeps} others");
        hand.node.kill(&hand.caller, KillArgs { session_id: session.clone(), exec_id: filler }).await.unwrap();
        until("there is room again", || async {
            hand.try_exec(command(&session, "rm -f full")).await.is_ok_and(|r| r.exit_code == Some(0))
        })
        .await;
    }
    let wanted = ExecArgs { exec_id: Some(ExecId::generate()), ..command(&session, "echo up") };
    assert_eq!(hand.try_exec(wanted).await.unwrap().output, "up\n");
    bench.finish().await;
}

pub async fn a_command_is_told_that_memory_ran_out_also_when_only_its_child_was_killed(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.try_open(OpenArgs { mem_mb: Some(64), ..OpenArgs::default() }).await.unwrap().session_id;
    let hog = "head -c 200000000 /dev/zero | tail > /dev/null";
    let killed = hand.sh(&session, &format!("{hog}; echo went on")).await;
    assert_eq!((killed.exit_code, killed.oom_killed), (Some(0), true), "{killed:?}");
    assert!(!hand.sh(&session, "true").await.oom_killed, "the next one is another");
    let killed = hand.sh(&session, hog).await;
    assert!(killed.oom_killed && killed.exit_code != Some(0), "{killed:?}");
    // Of two at once that end well, neither is told what may have been the other's.
    let (quiet, killed) = tokio::join!(hand.sh(&session, "sleep 3"), hand.sh(&session, hog));
    assert!(!quiet.oom_killed && killed.oom_killed, "{quiet:?} {killed:?}");
    bench.finish().await;
}
