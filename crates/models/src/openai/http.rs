//! The HTTP client: one POST, whose answer is read piece by piece.
//!
//! It takes its own cryptography along and asks no proxy, so that nothing else in the process
//! depends on how it is set up, nor it on others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use super::ApiKey;
use super::failure::{broken, unreachable};
use crate::{Error, ErrorKind};

#[derive(Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    authorization: Option<String>,
}

impl Http {
    pub fn new(base_url: &str, key: Option<&ApiKey>, connect_timeout: Duration) -> Result<Self, Error> {
        let url = format!("{}/chat/completions", base_url.trim_end_matches('/'));
        let url: Uri = url.parse().map_err(|error| unusable(base_url, error))?;
        let secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(unusable(base_url, "it must begin with http:// or https://")),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect_timeout));
        let tls = tls(secure).map_err(|error| unusable(base_url, error))?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp));
        Ok(Self { client, url, authorization: key.map(|ApiKey(key)| format!("Bearer {key}")) })
    }

    /// Dropping the answer before its end closes the connection.
    pub async fn post(&self, body: String) -> Result<Response<Incoming>, Error> {
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("hearth/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        // The one part that comes from outside is the key.
        let request =
            request.body(Full::from(body)).map_err(|_| unusable(&self.url, "its key is not a header value"))?;
        self.client.request(request).await.map_err(unreachable)
    }
}

/// The next piece of an answer; `None` at its end.
pub(super) async fn piece(answer: &mut Response<Incoming>) -> Result<Option<Bytes>, Error> {
    loop {
        match answer.body_mut().frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(broken(error)),
            // Trailers say nothing here.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(_) => continue,
            },
        }
    }
}

/// The system's certificates are read only where they are needed: a machine may have none.
fn tls(secure: bool) -> Result<ClientConfig, Box<dyn std::error::Error>> {
    let ciphers = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(ciphers).with_safe_default_protocol_versions()?;
    let builder =
        if secure { builder.with_native_roots()? } else { builder.with_root_certificates(RootCertStore::empty()) };
    Ok(builder.with_no_client_auth())
}

fn unusable(base_url: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("the provider at `{base_url}` cannot be used: {why}"))
}
