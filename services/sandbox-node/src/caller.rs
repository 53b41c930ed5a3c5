//! Who a call over MCP is for: from headers, never from an argument.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, header};
use hearth_sandbox::{Caller, Needs};
use hearth_types::{Fault, FaultCode, RunId, check_id};

use crate::auth::Client;

const TENANT: &str = "x-loom-tenant";
const ROOT_RUN: &str = "x-loom-root-run";
/// What is behind it names a variable: `Gh-Token` is `GH_TOKEN`.
const SECRET: &str = "x-loom-sandbox-env-";

/// Reads the headers, and takes out of them what nobody behind this may see: the token and the secrets.
///
/// # Errors
/// `invalid_argument` that names the header and never shows a secret; `permission_denied` where a client
/// names another tenant than its own.
pub fn take(headers: &mut HeaderMap, client: &Client) -> Result<Caller, Fault> {
    headers.remove(header::AUTHORIZATION);
    let secrets = take_secrets(headers)?;
    let named = one(headers, TENANT)?;
    if let Some(tenant) = named
        && check_id(tenant).is_err()
    {
        return Err(Fault::invalid("X-Loom-Tenant", tenant, "1 to 128 characters of A-Z a-z 0-9 _ -"));
    }
    let principal = match (client, named) {
        (Client::Bound { tenant, .. }, Some(named)) if named != tenant => {
            let message = "`X-Loom-Tenant` names another tenant than that of the token; leave it out";
            return Err(Fault::new(FaultCode::PermissionDenied, message));
        }
        (Client::Bound { tenant, .. }, _) => tenant.clone(),
        (Client::Node { .. } | Client::Open { .. }, Some(named)) => named.to_owned(),
        (Client::Node { principal } | Client::Open { principal }, None) => principal.clone(),
    };
    let root_run = match one(headers, ROOT_RUN)? {
        None => None,
        Some(text) => {
            let parsed = RunId::parse(text);
            Some(parsed.map_err(|error| Fault::invalid("X-Loom-Root-Run", text, &error.to_string()))?)
        }
    };
    Ok(Caller { principal, run: root_run.clone(), root_run, call: None, secrets, needs: Needs::default() })
}

fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Fault> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Fault::invalid(name, "given twice", "one value"));
    }
    match first.map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.trim())),
        Some(Err(_)) => Err(Fault::invalid(name, "not text", "visible ASCII characters")),
    }
}

fn take_secrets(headers: &mut HeaderMap) -> Result<BTreeMap<String, String>, Fault> {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(SECRET)).cloned().collect();
    let mut secrets = BTreeMap::new();
    let mut refused = None;
    for name in names {
        let variable = name.as_str()[SECRET.len()..].replace('-', "_").to_ascii_uppercase();
        let values: Vec<_> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        let value = match values.as_slice() {
            [value] => String::from_utf8(value.as_bytes().to_vec()).ok(),
            _ => None,
        };
        let fresh = value.is_some_and(|value| secrets.insert(variable, value).is_none());
        if !fresh {
            refused = Some(name);
        }
    }
    match refused {
        None => Ok(secrets),
        Some(name) => Err(Fault::invalid(name.as_str(), "(not shown)", "one value of text for each variable")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(parse) {
            headers.append(name, value);
        }
        headers
    }

    fn node() -> Client {
        Client::Node { principal: "token_x".to_owned() }
    }

    fn acme() -> Client {
        Client::Bound { tenant: "acme".to_owned(), owner: "o".to_owned() }
    }

    #[test]
    fn the_holder_of_the_nodes_token_is_believed_and_without_a_tenant_is_itself() {
        let pairs = [("X-Loom-Tenant", "acme"), ("X-Loom-Root-Run", "run_1"), ("Authorization", "Bearer t")];
        let mut given = headers(&pairs);
        let caller = take(&mut given, &node()).unwrap();
        assert_eq!((caller.principal.as_str(), caller.root_run.unwrap().as_str()), ("acme", "run_1"));
        assert!(!given.contains_key("authorization"));
        assert_eq!(take(&mut headers(&[]), &node()).unwrap().principal, "token_x");
    }

    #[test]
    fn a_client_of_the_tokens_file_cannot_name_another_tenant() {
        assert_eq!(take(&mut headers(&[]), &acme()).unwrap().principal, "acme");
        assert_eq!(take(&mut headers(&[("X-Loom-Tenant", "acme")]), &acme()).unwrap().principal, "acme");
        let refused = take(&mut headers(&[("X-Loom-Tenant", "other")]), &acme()).unwrap_err();
        assert_eq!(refused.code, FaultCode::PermissionDenied);
    }

    #[test]
    fn secrets_are_taken_out_of_the_headers_and_named_after_them() {
        let mut given = headers(&[("X-Loom-Sandbox-Env-Gh-Token", "s3cret"), ("X-Loom-Sandbox-Env-A", "1")]);
        let caller = take(&mut given, &node()).unwrap();
        assert_eq!(caller.secrets["GH_TOKEN"], "s3cret");
        assert_eq!(caller.secrets["A"], "1");
        assert!(given.is_empty() && !format!("{caller:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_wrong_is_refused_by_the_name_of_its_header_and_no_secret_is_shown() {
        for pairs in [
            &[("X-Loom-Tenant", "")][..],
            &[("X-Loom-Tenant", "../x")],
            &[("X-Loom-Tenant", "a"), ("X-Loom-Tenant", "b")],
            &[("X-Loom-Root-Run", "run 1")],
            &[("X-Loom-Sandbox-Env-A", "s3cret"), ("X-Loom-Sandbox-Env-A", "s3cret")],
            &[("X-Loom-Sandbox-Env-A-B", "s3cret"), ("X-Loom-Sandbox-Env-A_B", "s3cret")],
        ] {
            let fault = take(&mut headers(pairs), &node()).unwrap_err();
            assert_eq!(fault.code, FaultCode::InvalidArgument);
            let body = fault.to_body().to_string();
            assert!(body.to_lowercase().contains("x-loom-") && !body.contains("s3cret"), "{body}");
        }
    }
}
