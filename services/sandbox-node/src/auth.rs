//! The node's token, compared in constant time.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The digest of the token that callers must bear.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    pub fn new(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn admits(&self, presented: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        self.0.ct_eq(&digest).into()
    }
}

/// Refuses what does not bear the token: as gRPC to gRPC callers, as HTTP to others.
pub async fn check(State(token): State<Token>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let presented = header.and_then(|value| value.strip_prefix("Bearer "));
    if presented.is_some_and(|presented| token.admits(presented)) {
        return next.run(request).await;
    }
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content.is_some_and(|content| content.starts_with("application/grpc")) {
        return tonic::Status::unauthenticated("send the node's token").into_http();
    }
    let fault = hearth_types::Fault::new(
        hearth_types::FaultCode::Unauthenticated,
        "send `Authorization: Bearer TOKEN` with the node's token",
    );
    (StatusCode::UNAUTHORIZED, axum::Json(fault.to_body())).into_response()
}
