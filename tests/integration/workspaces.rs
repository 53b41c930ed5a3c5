//! Durable workspaces as a whole: listed, taken out, brought in, removed.

use hearth_tests::{Api, Options, Server, eventually};
use serde_json::{Value, json};

const OPS: &str = "token-of-ops-0123456789abcdef";
const ANN: &str = "token-of-ann-0123456789abcdef";
const EVE: &str = "token-of-eve-0123456789abcdef";

async fn server() -> Server {
    Options::default()
        .variable("SANDBOX_DRIVER", "local")
        .variable("SANDBOX_MAX_WORKSPACE_MB", "8")
        .token(OPS, "acme", "ops", "operator")
        .token(ANN, "acme", "ann", "member")
        .token(EVE, "other", "eve", "operator")
        .start()
        .await
}

fn commands(workspace: &str, list: &[&str]) -> String {
    json!({ "workspace": workspace, "commands": list }).to_string()
}

async fn output(api: &Api, workspace: &str, command: &str) -> String {
    let run = api.run("dev/exec", &commands(workspace, &[command])).await;
    let output: Value = serde_json::from_str(run["output"].as_str().unwrap_or_default()).unwrap_or_default();
    output["results"][0]["output"].as_str().unwrap_or_else(|| panic!("no output in {run}")).to_owned()
}

async fn list(api: &Api) -> Vec<Value> {
    api.get("/v1/workspaces").await.ok()["workspaces"].as_array().expect("a list").clone()
}

async fn export(api: &Api, name: &str) -> Vec<u8> {
    let response = api.request("GET", &format!("/v1/workspaces/{name}/export")).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "application/x-tar");
    response.bytes().await.unwrap().to_vec()
}

async fn import(api: &Api, name: &str, tar: Vec<u8>) -> hearth_tests::Reply {
    api.finish(api.request("PUT", &format!("/v1/workspaces/{name}/import")).body(tar)).await
}

async fn delete(api: &Api, name: &str) -> hearth_tests::Reply {
    api.finish(api.request("DELETE", &format!("/v1/workspaces/{name}"))).await
}

/// Waits until no session has the workspace: a run's sessions go after its end was told.
async fn free(api: &Api, name: &str) {
    eventually("its sessions are gone", async || {
        let row = api.get(&format!("/v1/workspaces/{name}")).await.ok();
        (row["sessions"] == json!([])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_workspace_is_listed_exported_imported_and_removed() {
    let server = server().await;
    let api = server.api().with_token(OPS);
    let first =
        commands("build", &["echo kept > file; chmod 755 file; ln -s file link; mkdir -p a/b; echo deep > a/b/c"]);
    let holder = api.open("dev/exec", &first).await;
    let row = api.get("/v1/workspaces/build").await.ok();
    for field in ["node", "measured_at", "created_at"] {
        assert!(row[field].is_string(), "{field} in {row}");
    }
    assert_eq!((row["tenant_id"].as_str(), row["limit_bytes"].as_u64()), (Some("acme"), Some(8 << 20)));
    assert!(row["size_bytes"].as_u64() > Some(0) && row["files"].as_u64() >= Some(5), "{row}");
    assert_eq!(row["sessions"][0]["root_run_id"], holder.as_str(), "by whom it is used");

    let refused = delete(&api, "build").await.refused(409, "conflict");
    assert!(refused["details"]["session_id"].is_string(), "{refused}");
    let tar = export(&api, "build").await;
    import(&api, "build", tar.clone()).await.refused(409, "conflict");
    api.close(&holder).await;
    free(&api, "build").await;

    let imported = import(&api, "copy", tar.clone()).await.ok();
    assert_eq!(imported["name"], "copy");
    assert_eq!(
        output(&api, "copy", "cat link a/b/c; test -x file && echo executable").await,
        "kept\ndeep\nexecutable\n"
    );
    output(&api, "copy", "echo more > later").await;
    free(&api, "copy").await;
    import(&api, "copy", tar).await.ok();
    assert_eq!(output(&api, "copy", "ls later 2>&1 | grep -c 'No such'").await, "1\n", "an import replaces");
    free(&api, "copy").await;

    assert_eq!(delete(&api, "copy").await.ok(), json!({ "name": "copy", "deleted": true }));
    delete(&api, "copy").await.refused(404, "not_found");
    api.get("/v1/workspaces/copy/export").await.refused(404, "not_found");
    assert_eq!(list(&api).await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_workspace_is_its_tenants_and_operators_change_it() {
    let server = server().await;
    let (ops, ann, eve) = (server.api().with_token(OPS), server.api().with_token(ANN), server.api().with_token(EVE));
    output(&ann, "build", "echo secret > file").await;
    free(&ops, "build").await;
    assert_eq!(list(&ann).await.len(), 1);
    delete(&ann, "build").await.refused(403, "permission_denied");
    import(&ann, "build", vec![0; 1_024]).await.refused(403, "permission_denied");
    assert!(list(&eve).await.is_empty());
    for path in ["", "/export"] {
        let paths = ["build", "unknown"].map(|name| format!("/v1/workspaces/{name}{path}"));
        let (foreign, unknown) = (eve.get(&paths[0]).await, eve.get(&paths[1]).await);
        assert_eq!(foreign.text, unknown.text);
        foreign.refused(404, "not_found");
    }
    delete(&eve, "build").await.refused(404, "not_found");
    eve.get("/v1/workspaces?tenant=acme").await.refused(403, "permission_denied");
    server.api().get("/v1/workspaces/build?tenant=acme").await.ok();
    server.stop().await;
}

#[tokio::test]
async fn an_import_that_is_refused_leaves_what_was_there() {
    let server = server().await;
    let api = server.api().with_token(OPS);
    output(&api, "build", "echo kept > file").await;
    free(&api, "build").await;
    import(&api, "build", b"no archive at all".repeat(100)).await.refused(400, "invalid_argument");
    import(&api, "build", Vec::new()).await.refused(400, "invalid_argument");
    import(&api, "../up", vec![0; 1_024]).await.refused(404, "not_found");
    import(&api, "Big", vec![0; 1_024]).await.refused(400, "invalid_argument");
    let tar = export(&api, "build").await;
    import(&api, "build", tar[..700].to_vec()).await.refused(400, "invalid_argument");
    output(&api, "large", "head -c 7000000 /dev/zero > a").await;
    let large = export(&api, "large").await;
    let twice = [&large[..large.len() - 1_024], &large].concat();
    import(&api, "build", twice).await.refused(413, "payload_too_large");
    assert_eq!(output(&api, "build", "cat file; ls -a").await, "kept\n.\n..\n.home\nfile\n");
    server.stop().await;
}
