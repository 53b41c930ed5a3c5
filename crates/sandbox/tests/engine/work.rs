//! T7: `/work` is the session's, whatever the image, another user or a full disk made of it.

use hearth_sandbox::{ExecArgs, OpenArgs};
use hearth_types::SandboxId;

use super::{TestImage, cli};
use crate::docker;
use crate::suite::bench::{Bench, caller, code, command, until};

#[tokio::test(flavor = "multi_thread")]
async fn t7_work_is_the_users_whatever_the_image_ships() {
    let Some(place) = docker().await else { return };
    let image = TestImage::build(
        "t7",
        "USER root\nRUN chown -R root:root /work && chmod 755 /work && mkdir /data && chmod 777 /data\nVOLUME /data\nENTRYPOINT [\"/bin/false\"]",
    );
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.try_open(OpenArgs { tmpfs_mb: Some(16), ..image.open() }).await.unwrap().session_id;
    let ran = hand.sh(&session, "printf '#!/bin/sh\\necho ran\\n' > s; chmod +x s; ./s; id -un").await;
    assert_eq!(ran.output, "ran\nagent\n");
    let full = hand.sh(&session, "head -c 33554432 /dev/zero > big; rm big; echo after > f; cat f").await;
    assert!(full.output.contains("No space left") && full.output.ends_with("after\n"), "{full:?}");
    let volume = hand.sh(&session, "head -c 33554432 /dev/zero > /data/big").await;
    assert!(volume.output.contains("No space left"), "a volume of the image has a bound: {volume:?}");
    let name = format!("hearth-{session}");
    assert_eq!(
        cli(&["inspect", "-f", "{{range .Mounts}}{{if eq .Type \"volume\"}}{{.Name}}{{end}}{{end}}", &name]),
        ""
    );
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t7_a_full_work_says_so_and_stays_usable() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let args = OpenArgs { tmpfs_mb: Some(16), ..OpenArgs::default() };
    let session = hand.try_open(args).await.unwrap().session_id;
    let full = hand.sh(&session, "head -c 33554432 /dev/zero > big").await;
    assert_ne!(full.exit_code, Some(0));
    assert!(full.output.contains("No space left"), "{full:?}");
    let refused = hand.write(&session, "more", &"x".repeat(1 << 20)).await;
    assert_eq!(code(refused), "quota_exceeded");
    assert_eq!(hand.sh(&session, "rm big; echo again > f; cat f").await.output, "again\n");
    until("it takes writes again", || async { hand.write(&session, "more", "x").await.is_ok() }).await;
    bench.finish().await;
}

/// As a local session of root's leaves it, and as it was found with only the folder itself given.
#[tokio::test(flavor = "multi_thread")]
async fn t7_a_workspace_that_another_user_filled_is_the_sessions() {
    let Some(place) = docker().await else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let opened = hand.workspace("filled").await;
    hand.write(&opened.session_id, "a/f", "before").await.unwrap();
    let folder = bench.options.workspace_root.as_deref().unwrap().join("acme/filled");
    for all in [true, false] {
        hand.close(&hand.workspace("filled").await.session_id).await.unwrap();
        let root = std::process::Command::new("chown").arg("-R").arg("0:0").arg(&folder).status().unwrap();
        assert!(root.success());
        if !all {
            std::os::unix::fs::chown(&folder, Some(1000), Some(1000)).unwrap();
        }
        let session = hand.workspace("filled").await.session_id;
        hand.write(&session, "a/f", "after").await.unwrap();
        let listed =
            hand.try_exec(command(&session, "rm a/f && touch a/f .home/x && find . ! -user 1000")).await.unwrap();
        assert_eq!((listed.exit_code, listed.output.as_str()), (Some(0), ""), "{listed:?}");
    }
    bench.finish().await;
}

/// The warm cache: a real compiler in a durable workspace, over two sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_cache_is_warm_in_the_next_session() {
    let Some(place) = docker().await else { return };
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.workspace("build").await.session_id;
    hand.write(&session, "Cargo.toml", "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
        .await
        .unwrap();
    hand.write(&session, "src/main.rs", "fn main() { println!(\"built\"); }\n").await.unwrap();
    let build =
        |session: &SandboxId| ExecArgs { timeout_seconds: Some(120), ..command(session, "cargo run --offline") };
    let cold = hand.try_exec(build(&session)).await.unwrap();
    assert!(cold.output.contains("Compiling demo") && cold.output.ends_with("built\n"), "{cold:?}");
    hand.close(&session).await.unwrap();
    let session = hand.workspace("build").await.session_id;
    let warm = hand.try_exec(build(&session)).await.unwrap();
    assert!(!warm.output.contains("Compiling") && warm.output.ends_with("built\n"), "{warm:?}");
    bench.finish().await;
}
