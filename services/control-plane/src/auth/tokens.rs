//! The tokens file.

use std::path::Path;

use hearth_types::{Principal, Role, check_id};
use serde::Deserialize;

use super::{AuthError, Entry};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Token>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    sha256: String,
    tenant: String,
    subject: String,
    role: Role,
}

pub(super) fn read(path: &Path) -> Result<Vec<Entry>, AuthError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AuthError::Unreadable { path: path.display().to_string(), source })?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, AuthError> {
    let malformed = |reason: String| AuthError::Malformed { path: path.display().to_string(), reason };
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        malformed(format!("line {line}: {}", error.message()))
    })?;
    if file.token.is_empty() {
        return Err(malformed("it has no [[token]]".to_owned()));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(file.token.len());
    for (number, token) in (1..).zip(file.token) {
        let entry = entry(token).map_err(|reason| malformed(format!("[[token]] {number}: {reason}")))?;
        if entries.iter().any(|known| known.digest == entry.digest) {
            return Err(malformed(format!(
                "[[token]] {number}: its `sha256` is there already; one token is one caller"
            )));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(token: Token) -> Result<Entry, String> {
    let mut digest = [0u8; 32];
    hex::decode_to_slice(&token.sha256, &mut digest)
        .map_err(|_| "`sha256` is not 64 hex digits: hash the token with `sha256sum`".to_owned())?;
    if check_id(&token.tenant).is_err() {
        return Err(format!("`tenant` is {:?}; allowed: 1 to 128 characters of A-Z a-z 0-9 _ -", token.tenant));
    }
    let subject = token.subject.trim();
    if subject.is_empty() || subject.len() > 256 || subject.contains(char::is_control) {
        return Err(format!("`subject` is {:?}; allowed: 1 to 256 bytes of text, not blank", token.subject));
    }
    let principal = Principal { tenant: token.tenant, subject: subject.to_owned(), role: token.role };
    Ok(Entry { digest, principal })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sha256: &str, tenant: &str, subject: &str, role: &str) -> String {
        format!("[[token]]\nsha256 = \"{sha256}\"\ntenant = \"{tenant}\"\nsubject = \"{subject}\"\nrole = \"{role}\"\n")
    }

    fn refusal(text: &str) -> String {
        parse(Path::new("tokens.toml"), text).err().unwrap().to_string()
    }

    #[test]
    fn an_entry_that_names_nobody_stops_the_start() {
        let digest = "a".repeat(64);
        parse(Path::new("t"), &file(&digest, "acme", "ann", "admin")).map(drop).unwrap();
        for (text, told) in [
            (file(&digest, "", "ann", "admin"), "tenant"),
            (file(&digest, "a/b", "ann", "admin"), "tenant"),
            (file(&digest, "acme", "", "admin"), "subject"),
            (file(&digest, "acme", "  ", "admin"), "subject"),
            (file("abc", "acme", "ann", "admin"), "sha256"),
            (file(&digest, "acme", "ann", "root"), "line 5"),
            (format!("{}extra = 1\n", file(&digest, "acme", "ann", "admin")), "extra"),
            (file(&digest, "acme", "ann", "admin").repeat(2), "[[token]] 2"),
            (String::new(), "no [[token]]"),
        ] {
            let error = refusal(&text);
            assert!(error.contains("tokens.toml") && error.contains(told), "{error} lacks {told}");
        }
    }
}
