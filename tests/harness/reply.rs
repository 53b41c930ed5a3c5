//! What came back.

use reqwest::header::HeaderMap;
use serde_json::Value;

/// An answer that was read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// `null` where the text is not JSON.
    pub body: Value,
}

impl Reply {
    pub(crate) async fn read(response: reqwest::Response) -> Result<Self, reqwest::Error> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Self { status, headers, text, body })
    }

    /// The body of a 200.
    #[track_caller]
    pub fn ok(self) -> Value {
        self.with_status(200)
    }

    #[track_caller]
    pub fn with_status(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// The `error` object of a refusal with this status and code, of the form that every refusal has.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        let error = self.body["error"].clone();
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", self.text);
        assert!(error["retryable"].is_boolean(), "{}", self.text);
        error
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replay") == Some("true")
    }
}
