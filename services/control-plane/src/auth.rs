//! Who calls: tokens and their roles; or, without tokens, whoever reaches the loopback listener.
//!
//! Tokens are known by their SHA-256 digests. A presented token is hashed and compared with every
//! entry in constant time, so that neither a partial match nor an entry's place shows in the time.

mod tokens;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hearth_types::{Principal, Role};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::config::Settings;

/// The tenant of `--token` and of a replica without tokens.
pub const DEFAULT_TENANT: &str = "default";

/// Why a replica may not start with these credentials.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("no token is configured: set `tokens_file` or `token`, or say --no-auth (loopback only)")]
    NoToken,
    #[error("--no-auth and a token are both given: take one of them away")]
    NoAuthWithTokens,
    #[error(
        "--no-auth is only for loopback addresses, and `listen` is {0}: use 127.0.0.1 or [::1], or configure tokens"
    )]
    NotLoopback(SocketAddr),
    #[error("the tokens file {path} cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("the tokens file {path} cannot be used: {reason}")]
    Malformed { path: String, reason: String },
    #[error("the system gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

struct Entry {
    digest: [u8; 32],
    principal: Principal,
}

/// What checks callers. Cheap to clone.
#[derive(Clone)]
pub struct Auth {
    mode: Mode,
}

#[derive(Clone)]
enum Mode {
    Tokens(Arc<[Entry]>),
    Loopback,
}

impl Auth {
    /// Reads the tokens that the settings name.
    ///
    /// # Errors
    /// No token and no `--no-auth`; both; `--no-auth` beyond loopback; a tokens file that is wrong.
    pub fn from_settings(settings: &Settings) -> Result<Self, AuthError> {
        let mut entries = match &settings.tokens_file {
            Some(path) => tokens::read(path)?,
            None => Vec::new(),
        };
        if let Some(token) = &settings.token {
            entries.push(Entry { digest: digest(token.0.as_bytes()), principal: admin("token") });
        }
        match (entries.is_empty(), settings.no_auth) {
            (false, false) => Ok(Self { mode: Mode::Tokens(entries.into()) }),
            (false, true) => Err(AuthError::NoAuthWithTokens),
            (true, false) => Err(AuthError::NoToken),
            (true, true) => Self::loopback(settings.listen),
        }
    }

    /// One token, an admin of tenant `default`.
    pub fn single(token: &str) -> Self {
        let entry = Entry { digest: digest(token.as_bytes()), principal: admin("token") };
        Self { mode: Mode::Tokens([entry].into()) }
    }

    /// Tokens from the text of a tokens file.
    ///
    /// # Errors
    /// The text is not what a tokens file holds.
    pub fn from_tokens(path: &Path, text: &str) -> Result<Self, AuthError> {
        Ok(Self { mode: Mode::Tokens(tokens::parse(path, text)?.into()) })
    }

    /// No tokens.
    ///
    /// # Errors
    /// The address is not a loopback address.
    pub fn loopback(listen: SocketAddr) -> Result<Self, AuthError> {
        if listen.ip().is_loopback() { Ok(Self { mode: Mode::Loopback }) } else { Err(AuthError::NotLoopback(listen)) }
    }

    /// Whether no token protects this replica, so that `Host` and `Origin` have to.
    pub fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Loopback)
    }

    /// The principal of a request with this bearer token.
    pub fn identify(&self, token: Option<&str>) -> Option<Principal> {
        let entries = match &self.mode {
            Mode::Loopback => return Some(admin("no-auth")),
            Mode::Tokens(entries) => entries,
        };
        let presented = digest(token?.as_bytes());
        let mut found = Choice::from(0);
        let mut place = 0u64;
        for (index, entry) in (0u64..).zip(entries.iter()) {
            let equal = entry.digest.ct_eq(&presented);
            place.conditional_assign(&index, equal);
            found |= equal;
        }
        let entry = usize::try_from(place).ok().and_then(|index| entries.get(index));
        entry.filter(|_| bool::from(found)).map(|entry| entry.principal.clone())
    }
}

fn admin(subject: &str) -> Principal {
    Principal { tenant: DEFAULT_TENANT.to_owned(), subject: subject.to_owned(), role: Role::Admin }
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// A token that nobody can guess, for a replica that is started without one.
///
/// # Errors
/// The system has no randomness.
pub fn fresh_token() -> Result<String, AuthError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(AuthError::NoRandomness)?;
    Ok(format!("hearth_{}", hex::encode(bytes)))
}

/// The token of `Authorization: Bearer TOKEN`.
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    const FILE: &str = "
        [[token]]
        sha256 = \"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\" # a
        tenant = \"acme\"
        subject = \"ann\"
        role = \"member\"
        [[token]]
        sha256 = \"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d\" # b
        tenant = \"acme\"
        subject = \"bob\"
        role = \"operator\"
    ";

    fn settings(flags: &[(&'static str, &str)]) -> Settings {
        let flags = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Settings::load(&Sources { flags, ..Sources::default() }).unwrap()
    }

    #[test]
    fn each_token_is_its_own_principal_and_no_other_token_is_anybody() {
        let auth = Auth::from_tokens(Path::new("tokens.toml"), FILE).unwrap();
        let ann = auth.identify(Some("a")).unwrap();
        assert_eq!((ann.tenant.as_str(), ann.subject.as_str(), ann.role), ("acme", "ann", Role::Member));
        assert_eq!(auth.identify(Some("b")).unwrap().subject, "bob");
        for wrong in [None, Some(""), Some("c"), Some("A"), Some("a "), Some("ab")] {
            assert_eq!(auth.identify(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_replica_without_tokens_starts_only_when_told_to_and_only_on_loopback() {
        assert!(matches!(Auth::from_settings(&settings(&[])), Err(AuthError::NoToken)));
        let open = Auth::from_settings(&settings(&[("no_auth", "1")])).unwrap();
        assert_eq!(open.identify(None).unwrap().role, Role::Admin);
        let wide = settings(&[("no_auth", "1"), ("listen", "0.0.0.0:1")]);
        assert!(matches!(Auth::from_settings(&wide), Err(AuthError::NotLoopback(_))));
        let both = settings(&[("no_auth", "1"), ("token", "t")]);
        assert!(matches!(Auth::from_settings(&both), Err(AuthError::NoAuthWithTokens)));
    }

    #[test]
    fn the_token_setting_is_an_admin_of_the_default_tenant() {
        let auth = Auth::from_settings(&settings(&[("token", "t")])).unwrap();
        let principal = auth.identify(Some("t")).unwrap();
        assert_eq!((principal.tenant.as_str(), principal.role), (DEFAULT_TENANT, Role::Admin));
        assert!(!auth.is_open() && auth.identify(None).is_none());
    }

    #[test]
    fn only_a_bearer_header_holds_a_token() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc"), Some("abc"));
        for bad in ["", "abc", "Bearer", "Bearer ", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn fresh_tokens_differ() {
        let (one, two) = (fresh_token().unwrap(), fresh_token().unwrap());
        assert!(one != two && one.len() > 64);
    }
}
