//! Who calls a node: the holder of its own token, a client of the tokens file, or, without any token,
//! whoever reaches the loopback listener.
//!
//! Tokens are known by their SHA-256 digests. A presented one is hashed and compared with every entry in
//! constant time.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use hearth_mcp::{Owner, refuse};
use hearth_types::{Fault, FaultCode, Tenant, check_loopback_names, derive_hex};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller;
use crate::tokens::BoundToken;

/// The principal of whoever names none where no token is asked for.
const OPEN_PRINCIPAL: &str = "default";

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(
        "SANDBOX_AUTH_TOKEN is not set: without it anybody who reaches the node could run commands; set it, or say \
         --no-auth (loopback only)"
    )]
    NoToken,
    #[error("--no-auth and a token are both given: take one of them away")]
    NoAuthWithTokens,
    #[error("--no-auth is only for loopback addresses, and SANDBOX_LISTEN_ADDR is {0}: use 127.0.0.1 or [::1]")]
    NotLoopback(SocketAddr),
}

/// Who presented a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Client {
    /// The node's own token: a replica, believed about the tenant. Where it names none, `principal` is
    /// the token itself.
    Node { principal: Tenant },
    /// Of the tokens file, bound to the tenant written there.
    Bound { tenant: Tenant, owner: String },
    /// No token is asked for.
    Open { principal: Tenant },
}

/// Knows the tokens. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

enum Inner {
    Open,
    Tokens { node: Option<([u8; 32], Tenant)>, bound: Vec<BoundToken> },
}

impl Access {
    /// # Errors
    /// No token and no `--no-auth`; both; `--no-auth` beyond loopback.
    pub fn new(
        node_token: Option<&str>,
        bound: Vec<BoundToken>,
        no_auth: bool,
        listen: SocketAddr,
    ) -> Result<Self, AccessError> {
        let inner = match (node_token.is_none() && bound.is_empty(), no_auth) {
            (true, false) => return Err(AccessError::NoToken),
            (false, true) => return Err(AccessError::NoAuthWithTokens),
            (true, true) if listen.ip().is_loopback() => Inner::Open,
            (true, true) => return Err(AccessError::NotLoopback(listen)),
            (false, false) => {
                let own = |token: &str| (Sha256::digest(token).into(), own_principal(token));
                Inner::Tokens { node: node_token.map(own), bound }
            }
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether no token protects this node, so that `Host` and `Origin` have to.
    fn is_open(&self) -> bool {
        matches!(*self.inner, Inner::Open)
    }

    fn identify(&self, presented: Option<&str>) -> Option<Client> {
        let (node, bound) = match &*self.inner {
            Inner::Open => return Some(Client::Open { principal: OPEN_PRINCIPAL.to_owned() }),
            Inner::Tokens { node, bound } => (node, bound),
        };
        let presented: [u8; 32] = Sha256::digest(presented?).into();
        let mut found = None;
        // All are compared, whichever it is.
        for token in bound {
            if token.digest.ct_eq(&presented).into() {
                found = Some(Client::Bound { tenant: token.tenant.clone(), owner: token.owner() });
            }
        }
        if let Some((digest, principal)) = node
            && digest.ct_eq(&presented).into()
        {
            found = Some(Client::Node { principal: principal.clone() });
        }
        found
    }

    fn of(&self, request: &Request) -> Result<Client, Fault> {
        if self.is_open() {
            let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
            let host = text(header::HOST).or_else(|| request.uri().authority().map(|authority| authority.as_str()));
            check_loopback_names(host, text(header::ORIGIN))?;
        }
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        self.identify(header.and_then(bearer)).ok_or_else(|| {
            Fault::new(FaultCode::Unauthenticated, "send `Authorization: Bearer TOKEN` with a token of this node")
        })
    }
}

/// A principal of its own for a token, of a form that no tenant's name is given by accident.
fn own_principal(token: &str) -> Tenant {
    format!("token_{}", derive_hex(&["node-principal", token]))
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// For what only a replica or the operator may use: gRPC and metrics. A refusal is gRPC to gRPC callers,
/// HTTP to others.
pub async fn only_node(State(access): State<Access>, request: Request, next: Next) -> Response {
    let fault = match access.of(&request) {
        Ok(Client::Node { .. } | Client::Open { .. }) => return next.run(request).await,
        Ok(Client::Bound { .. }) => {
            Fault::new(FaultCode::PermissionDenied, "this needs the node's own token, SANDBOX_AUTH_TOKEN")
        }
        Err(fault) => fault,
    };
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content.is_some_and(|content| content.starts_with("application/grpc")) {
        let status = match fault.code {
            FaultCode::Unauthenticated => tonic::Status::unauthenticated(fault.message),
            _ => tonic::Status::permission_denied(fault.message),
        };
        return status.into_http();
    }
    refuse(&fault)
}

/// For MCP: every client of this node, and who its call is for. Tokens and secrets go no further.
pub async fn any_client(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let caller = access.of(&request).and_then(|client| {
        let caller = caller::take(request.headers_mut(), &client)?;
        Ok((caller, client))
    });
    let (caller, client) = match caller {
        Ok(known) => known,
        Err(fault) => return refuse(&fault),
    };
    let owner = match client {
        Client::Node { principal } | Client::Open { principal } => principal,
        Client::Bound { owner, .. } => owner,
    };
    request.extensions_mut().insert(Owner(owner));
    request.extensions_mut().insert(caller);
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(token: &str, tenant: &str) -> BoundToken {
        BoundToken { digest: Sha256::digest(token).into(), tenant: tenant.to_owned() }
    }

    const LOOPBACK: &str = "127.0.0.1:9000";

    #[test]
    fn each_token_is_its_own_client_and_no_other_is_anybody() {
        let access = Access::new(Some("node"), vec![bound("a", "acme")], false, LOOPBACK.parse().unwrap()).unwrap();
        let Some(Client::Node { principal }) = access.identify(Some("node")) else { panic!("the node's own") };
        assert!(hearth_types::check_id(&principal).is_ok() && !principal.contains("node"));
        assert!(matches!(access.identify(Some("a")), Some(Client::Bound { tenant, .. }) if tenant == "acme"));
        for wrong in [None, Some(""), Some("b"), Some("NODE"), Some("nod")] {
            assert_eq!(access.identify(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_node_without_tokens_starts_only_when_told_to_and_only_on_loopback() {
        let (near, wide) = (LOOPBACK.parse().unwrap(), "0.0.0.0:9000".parse().unwrap());
        assert!(matches!(Access::new(None, vec![], false, near), Err(AccessError::NoToken)));
        assert!(matches!(Access::new(None, vec![], true, wide), Err(AccessError::NotLoopback(_))));
        assert!(matches!(Access::new(Some("t"), vec![], true, near), Err(AccessError::NoAuthWithTokens)));
        assert!(Access::new(None, vec![], true, near).unwrap().is_open());
        assert!(Access::new(None, vec![bound("a", "acme")], false, wide).is_ok());
    }

    #[test]
    fn without_a_token_a_page_of_another_site_is_refused() {
        let access = Access::new(None, vec![], true, LOOPBACK.parse().unwrap()).unwrap();
        let request = |host: &str, origin: Option<&str>| {
            let mut request = Request::builder().header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            request.body(axum::body::Body::empty()).unwrap()
        };
        assert!(access.of(&request("127.0.0.1:9000", Some("http://localhost:5173"))).is_ok());
        assert!(access.of(&request("rebound.example", None)).is_err());
        assert!(access.of(&request("127.0.0.1:9000", Some("http://evil.example"))).is_err());
    }
}
