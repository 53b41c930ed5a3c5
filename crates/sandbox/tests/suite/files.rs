//! Files: what is written is read, nothing outside of the workspace, and who changed what.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_sandbox::{OpenArgs, ReadArgs, Sandboxes as _, WriteArgs};
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use super::bench::{Bench, Place, caller, code, run};

pub async fn what_is_written_is_read(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let written = hand.write(&session, "src/deep/a.txt", "grüß\n").await.unwrap();
    assert_eq!(written.bytes_written, 7);
    assert_eq!(hand.sh(&session, "cat src/deep/a.txt").await.output, "grüß\n");
    let read = hand.read(&session, "src/deep/a.txt").await.unwrap();
    assert_eq!((read.content.as_str(), read.encoding.as_str(), read.size), ("grüß\n", "utf8", 7));
    assert!(!read.truncated);

    let script = WriteArgs {
        session_id: session.clone(),
        path: "run.sh".into(),
        content: "IyEvYmluL3NoCmVjaG8gcmFuCg==".into(),
        encoding: Some("base64".into()),
        mode: Some(json!("0755")),
    };
    hand.node.write(&hand.caller, script).await.unwrap();
    assert_eq!(hand.sh(&session, "./run.sh").await.output, "ran\n");

    hand.sh(&session, r"printf '\377\000' > raw; printf 'aé' > text").await;
    let raw = hand.read(&session, "raw").await.unwrap();
    assert_eq!((raw.content.as_str(), raw.encoding.as_str()), ("/wA=", "base64"));
    let part =
        ReadArgs { session_id: session.clone(), path: "text".into(), encoding: None, offset: None, max_bytes: Some(2) };
    let part = hand.node.read(&hand.caller, part).await.unwrap();
    assert_eq!((part.content.as_str(), part.truncated, part.size), ("a", true, 3));
    assert_eq!(code(hand.read(&session, "no/such").await), "not_found");
    bench.finish().await;
}

/// T9
pub async fn t9_paths_that_leave_the_workspace_are_refused(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let links = hand.sh(&session, "ln -s / up && ln -s /etc/passwd file && mkdir in && ln -s ../.. in/out").await;
    assert_eq!(links.exit_code, Some(0), "{links:?}");
    for path in ["up/tmp/t9-probe", "in/out/t9-probe", "../t9-probe", "/t9-probe", "a/../../t9-probe"] {
        let written = hand.write(&session, path, "x").await;
        assert!(written.is_err(), "{path}");
        let refused = code(written);
        assert!(["tool_refused", "invalid_argument"].contains(&refused), "{path}: {refused}");
    }
    for path in ["../../etc/shadow", "up/etc/passwd", "file", "/etc/passwd"] {
        let refused = code(hand.read(&session, path).await);
        assert!(["tool_refused", "invalid_argument"].contains(&refused), "{path}: {refused}");
    }
    assert!(!std::path::Path::new("/tmp/t9-probe").exists());
    assert_eq!(hand.sh(&session, "ls /tmp/t9-probe /t9-probe 2>/dev/null | wc -l").await.output.trim(), "0");
    bench.finish().await;
}

/// T9
pub async fn t9_a_workspace_swapped_for_a_link_is_refused(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let opened = hand.workspace("build").await;
    assert!(opened.persistent);
    hand.close(&opened.session_id).await.unwrap();
    let folder = bench.dir().join("workspaces/acme/build");
    let elsewhere = bench.dir().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(&folder, bench.dir().join("kept")).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    let args = OpenArgs { workspace: Some("build".into()), ..OpenArgs::default() };
    assert_eq!(code(hand.try_open(args).await), "tool_refused");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(hand.listed().await.is_empty());
    bench.finish().await;
}

/// T9: whatever the race gives, no session ever has the other folder as its workspace.
pub async fn t9_a_workspace_that_is_swapped_while_it_is_opened_is_never_another(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let opened = hand.workspace("build").await;
    hand.close(&opened.session_id).await.unwrap();
    let folder = bench.dir().join("workspaces/acme/build");
    let (aside, elsewhere) = (bench.dir().join("aside"), bench.dir().join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::chown(&elsewhere, Some(1000), Some(1000)).ok();
    std::fs::write(elsewhere.join("not-yours"), "x").unwrap();
    symlink(&elsewhere, &aside).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            // An even number of exchanges, so that all is in its place at the end.
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..2 {
                    rustix::fs::renameat_with(CWD, &folder, CWD, &aside, RenameFlags::EXCHANGE).unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        })
    };
    for _ in 0..6 {
        let args = OpenArgs { workspace: Some("build".into()), ..OpenArgs::default() };
        match hand.try_open(args).await {
            Ok(opened) => {
                let seen = hand.sh(&opened.session_id, "ls").await.output;
                assert!(!seen.contains("not-yours"), "{seen}");
                hand.close(&opened.session_id).await.unwrap();
            }
            Err(fault) => assert!(["tool_refused", "unavailable"].contains(&fault.code.as_str()), "{fault}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    if bench.place.contained {
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1, "nothing was written elsewhere");
    }
    bench.finish().await;
}

pub async fn a_durable_workspace_outlives_its_sessions(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let first = hand.workspace("build").await;
    hand.sh(&first.session_id, "echo kept > file; mkdir -p $HOME/.cache && echo c > $HOME/.cache/c").await;
    hand.close(&first.session_id).await.unwrap();
    let second = hand.workspace("build").await;
    assert_ne!(first.session_id, second.session_id);
    assert_eq!(hand.sh(&second.session_id, "cat file $HOME/.cache/c").await.output, "kept\nc\n");

    let third = hand.workspace("build").await;
    assert_ne!(second.session_id, third.session_id, "without a run tree each open is another session");
    hand.sh(&third.session_id, "echo both > shared").await;
    assert_eq!(hand.sh(&second.session_id, "cat shared").await.output, "both\n");
    let marks = hand.sh(&second.session_id, "ls -A | grep -c hearth-mark").await;
    assert_eq!(marks.output.trim(), "0");

    let foreign = bench.hand(caller("beta"));
    let theirs = foreign.workspace("build").await;
    assert_eq!(foreign.sh(&theirs.session_id, "ls").await.output, "");
    bench.finish().await;
}

pub async fn a_read_only_workspace_cannot_be_written(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let writer = hand.workspace("build").await;
    hand.sh(&writer.session_id, "echo kept > file").await;
    let args = OpenArgs { workspace: Some("build".into()), read_only: Some(true), ..OpenArgs::default() };
    match hand.try_open(args).await {
        Ok(reader) => {
            assert_eq!(hand.sh(&reader.session_id, "cat file").await.output, "kept\n");
            assert_ne!(hand.sh(&reader.session_id, "echo no > file").await.exit_code, Some(0));
            assert!(hand.write(&reader.session_id, "file", "no").await.is_err());
            assert_eq!(hand.read(&writer.session_id, "file").await.unwrap().content, "kept\n");
        }
        // Where nothing can be mounted it is refused, and never just written to.
        Err(fault) => assert_eq!(fault.code.as_str(), "isolation_unavailable", "{fault}"),
    }
    bench.finish().await;
}

pub async fn a_read_names_the_run_that_changed_the_file(place: Place) {
    let mut bench = Bench::new(place).await;
    let (parent, child) = (bench.hand(run("run_root", "run_root")), bench.hand(run("run_root", "run_child")));
    let session = parent.open().await.session_id;
    parent.write(&session, "f", "1").await.unwrap();
    assert_eq!(child.read(&session, "f").await.unwrap().changed_by, None, "its first look");
    parent.write(&session, "./f", "two").await.unwrap();
    let changed_by = |run: Option<hearth_types::RunId>| run.map(|run| run.to_string());
    assert_eq!(changed_by(child.read(&session, "f").await.unwrap().changed_by).as_deref(), Some("run_root"));
    assert_eq!(child.read(&session, "f").await.unwrap().changed_by, None);
    assert_eq!(parent.read(&session, "f").await.unwrap().changed_by, None);
    child.sh(&session, "echo three > f").await;
    assert_eq!(changed_by(parent.read(&session, "f").await.unwrap().changed_by).as_deref(), Some("run_child"));
    assert_eq!(child.read(&session, "f").await.unwrap().changed_by, None, "its own change");
    parent.write(&session, "f", "four").await.unwrap();
    bench.restart().await;
    let child = bench.hand(run("run_root", "run_child"));
    let seen = child.read(&session, "f").await.unwrap();
    assert_eq!(changed_by(seen.changed_by).as_deref(), Some("run_root"), "the next process knows it, too");
    bench.finish().await;
}
