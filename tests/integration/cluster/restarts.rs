//! Members whose start fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hearth_tests::ClusterOptions;

/// Stands before the real program on the path: it fails at its first two starts, then gives way to it.
const FAILS_TWICE: &str = r#"#!/bin/sh
echo start >>"$STARTS"
[ "$(wc -l <"$STARTS")" -ge 3 ] || exit 1
PATH=${PATH#*:}:$HOME/.cache/hearth/tools
exec redis-server "$@"
"#;

#[tokio::test]
async fn a_member_whose_start_fails_is_started_again_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("redis-server");
    fs::write(&program, FAILS_TWICE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let starts = folder.path().join("starts");
    let options = ClusterOptions::default().replicas(1).variable("PATH", path).variable("STARTS", starts.display());
    let Some(cluster) = options.start().await else { return };
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 3);
    let said = fs::read_to_string(cluster.folder().join("cluster.log")).unwrap();
    for told in ["redis ended before it could serve (exit status: 1)", "2 of 3 times", "3 of 3 times"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let api = cluster.api(0);
    let id = api.open("mock", "begin").await;
    assert_eq!(api.send(&id, "there").await["output"], "there");
    cluster.stop().await;
}
