//! The description and what is served are the same.

use std::collections::BTreeSet;

use super::*;

/// The paths of the contract that have a use case.
const CONTRACT: &[(&str, &str)] = &[
    ("get", "/v1/runs"),
    ("post", "/v1/runs"),
    ("get", "/v1/runs/{id}"),
    ("get", "/v1/runs/{id}/stream"),
    ("post", "/v1/runs/{id}/input"),
    ("post", "/v1/runs/{id}/cancel"),
    ("post", "/v1/runs/{id}/close"),
    ("put", "/v1/runs/{id}/sandbox"),
    ("delete", "/v1/runs/{id}/sandbox"),
    ("post", "/v1/sessions/{id}/messages"),
    ("get", "/v1/sessions/{id}/transcript"),
    ("get", "/v1/_resident"),
    ("post", "/v1/_resident"),
    ("post", "/v1/_resident/{id}/send"),
    ("get", "/v1/_resident/{id}"),
    ("post", "/v1/_resident/{id}/cancel"),
    ("post", "/v1/_resident/{id}/close"),
    ("get", "/v1/agents"),
    ("get", "/v1/agents/{name}"),
    ("post", "/v1/agents"),
    ("patch", "/v1/agents/{name}"),
    ("delete", "/v1/agents/{name}"),
    ("post", "/v1/agents/{name}/fork"),
    ("post", "/v1/agents/{name}/clone"),
    ("get", "/v1/skills"),
    ("post", "/v1/skills"),
    ("get", "/v1/skills/{name}"),
    ("patch", "/v1/skills/{name}"),
    ("delete", "/v1/skills/{name}"),
    ("post", "/v1/sessions/{id}/replay"),
    ("post", "/v1/runs/{id}/snapshot"),
    ("get", "/v1/snapshots"),
    ("get", "/v1/snapshots/{id}/export"),
    ("post", "/v1/snapshots/import"),
    ("post", "/v1/snapshots/{id}/resume"),
    ("delete", "/v1/snapshots/{id}"),
    ("get", "/v1/_replicas"),
    ("post", "/v1/_replicas/{id}/drain"),
    ("get", "/v1/_nodes"),
    ("post", "/v1/_nodes/{id}/drain"),
    ("get", "/v1/_sandboxes"),
    ("post", "/v1/_sandboxes/{id}/close"),
    ("post", "/v1/_sandboxes/close_run"),
    ("get", "/v1/workspaces"),
    ("get", "/v1/workspaces/{name}"),
    ("delete", "/v1/workspaces/{name}"),
    ("get", "/v1/workspaces/{name}/export"),
    ("put", "/v1/workspaces/{name}/import"),
    ("get", "/livez"),
    ("get", "/readyz"),
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
];

async fn spec(server: &Server) -> Value {
    let text = server.anonymous(Method::GET, "/openapi.json").send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

fn operations(spec: &Value) -> BTreeSet<(String, String)> {
    let paths = spec["paths"].as_object().unwrap();
    let of_path = |(path, methods): (&String, &Value)| {
        methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

#[tokio::test]
async fn the_description_lists_the_contract_and_every_route() {
    let server = Server::start().await;
    let described = operations(&spec(&server).await);
    let contract = CONTRACT.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(described, contract);
    let registered: BTreeSet<_> =
        table().routes().iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(described, registered);
}

#[tokio::test]
async fn everything_described_is_served_and_protected_as_described() {
    let server = Server::start().await;
    let spec = spec(&server).await;
    for (method, path) in operations(&spec) {
        let concrete = path.replace("{id}", "x").replace("{name}", "chat%2Fmedium");
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let open = spec["paths"][&path][&method].get("security").is_some();
        let anonymous = server.anonymous(verb.clone(), &concrete).send().await.unwrap();
        assert_eq!(anonymous.status() == 401, !open, "{method} {path}");
        // Without a body a command that needs one is refused for it: 400 is an answer of its route.
        let known = server.request(verb, &concrete).header("accept", "application/json").send().await.unwrap();
        let status = known.status().as_u16();
        assert!(status != 405 && status != 401, "{method} {path}: {status}");
        let statuses = spec["paths"][&path][&method]["responses"].as_object().unwrap();
        assert!(statuses.contains_key(&status.to_string()), "{method} {path} answers {status}, which is not described");
    }
}

#[tokio::test]
async fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let server = Server::start().await;
    let spec = spec(&server).await;
    let mut referred = BTreeSet::new();
    collect(&spec, &mut referred);
    for reference in &referred {
        assert!(spec.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for name in spec["components"]["schemas"].as_object().unwrap().keys() {
        assert!(referred.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
}

fn collect(value: &Value, referred: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("$ref", Value::String(target)) => drop(referred.insert(target.clone())),
                    _ => collect(field, referred),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, referred)),
        _ => {}
    }
}
