//! The tokens file of a node: clients that are bound to a tenant.

use std::path::{Path, PathBuf};

use hearth_types::{Tenant, check_id};
use serde::Deserialize;

#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    #[error("the tokens file {path} cannot be read: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the tokens file {path} cannot be used: {reason}")]
    Malformed { path: PathBuf, reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundToken {
    pub digest: [u8; 32],
    pub tenant: Tenant,
}

impl BoundToken {
    /// Whose the client's MCP sessions are.
    pub fn owner(&self) -> String {
        hex::encode(self.digest)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Token>,
}

/// As in the tokens file of replicas, so that one file can serve both; a node has no use for the last two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    sha256: String,
    tenant: String,
    #[serde(default, rename = "subject")]
    _subject: Option<String>,
    #[serde(default, rename = "role")]
    _role: Option<String>,
}

pub fn read(path: &Path) -> Result<Vec<BoundToken>, TokensError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| TokensError::Unreadable { path: path.to_owned(), source })?;
    parse(&text).map_err(|reason| TokensError::Malformed { path: path.to_owned(), reason })
}

fn parse(text: &str) -> Result<Vec<BoundToken>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    if file.token.is_empty() {
        return Err("it has no [[token]]".to_owned());
    }
    let mut bound: Vec<BoundToken> = Vec::with_capacity(file.token.len());
    for (number, token) in (1..).zip(file.token) {
        let entry = entry(token).map_err(|reason| format!("[[token]] {number}: {reason}"))?;
        if bound.iter().any(|known| known.digest == entry.digest) {
            return Err(format!("[[token]] {number}: its `sha256` is there already; one token is one client"));
        }
        bound.push(entry);
    }
    Ok(bound)
}

fn entry(token: Token) -> Result<BoundToken, String> {
    let mut digest = [0u8; 32];
    hex::decode_to_slice(&token.sha256, &mut digest)
        .map_err(|_| "`sha256` is not 64 hex digits: hash the token with `sha256sum`".to_owned())?;
    if check_id(&token.tenant).is_err() {
        return Err(format!("`tenant` is {:?}; allowed: 1 to 128 characters of A-Z a-z 0-9 _ -", token.tenant));
    }
    Ok(BoundToken { digest, tenant: token.tenant })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_binds_to_nobody_stops_the_start() {
        let file = |sha256: &str, tenant: &str| format!("[[token]]\nsha256 = \"{sha256}\"\ntenant = \"{tenant}\"\n");
        let digest = "a".repeat(64);
        assert_eq!(parse(&file(&digest, "acme")).unwrap()[0].tenant, "acme");
        let shared = format!("{}subject = \"ann\"\nrole = \"member\"\n", file(&digest, "acme"));
        assert!(parse(&shared).is_ok(), "the file of the replicas");
        for (text, told) in [
            (file("abc", "acme"), "sha256"),
            (file(&digest, ""), "tenant"),
            (file(&digest, "a/b"), "tenant"),
            (format!("{}extra = 1\n", file(&digest, "acme")), "extra"),
            (file(&digest, "acme").repeat(2), "[[token]] 2"),
            (String::new(), "no [[token]]"),
        ] {
            let reason = parse(&text).unwrap_err();
            assert!(reason.contains(told), "{reason} lacks {told}");
        }
    }
}
