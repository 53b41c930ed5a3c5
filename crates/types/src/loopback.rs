//! The names under which a server without tokens may be called.
//!
//! A page of any site that is open in a browser on this machine can send requests to loopback
//! addresses, and by rebinding a name of its own to such an address it can read the answers too. The
//! first shows in `Origin`, the second in `Host`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Fault, FaultCode};

/// Refuses a request that was not addressed to a loopback name, or that comes from another origin.
///
/// # Errors
/// `permission_denied`, with what to do.
pub fn check_loopback_names(host: Option<&str>, origin: Option<&str>) -> Result<(), Fault> {
    let refused = |what: &str, value: &str| {
        let shown: String = value.chars().take(120).collect();
        Fault::new(
            FaultCode::PermissionDenied,
            format!(
                "`{what}` is {shown:?}; without tokens this server answers to localhost, 127.0.0.1 and [::1] only: \
                 call it by one of them, or start it with a token"
            ),
        )
    };
    let host = host.unwrap_or_default();
    if !is_loopback_authority(host) {
        return Err(refused("Host", host));
    }
    match origin {
        None => Ok(()),
        Some(origin) if is_loopback_origin(origin) => Ok(()),
        Some(origin) => Err(refused("Origin", origin)),
    }
}

fn is_loopback_origin(origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(is_loopback_authority)
}

/// `NAME`, `NAME:PORT`, `[V6]` or `[V6]:PORT`.
fn is_loopback_authority(authority: &str) -> bool {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => return is_v6_loopback(name),
            Some((name, port)) => return is_v6_loopback(name) && port.strip_prefix(':').is_some_and(is_port),
            None => return false,
        },
        None => authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port))),
    };
    let named = name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    named && port.is_none_or(is_port)
}

fn is_v6_loopback(name: &str) -> bool {
    name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_let_in() {
        for host in ["localhost", "LOCALHOST:7420", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:7420"] {
            check_loopback_names(Some(host), None).unwrap();
            check_loopback_names(Some(host), Some(&format!("http://{host}"))).unwrap();
        }
    }

    #[test]
    fn a_rebound_name_and_another_origin_are_refused() {
        let hosts = ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]:1"];
        for host in hosts.into_iter().chain(["localhost:evil", "[::1", "[::1]evil", "user@localhost", "0.0.0.0"]) {
            assert!(check_loopback_names(Some(host), None).is_err(), "{host:?}");
        }
        assert!(check_loopback_names(None, None).is_err());
        for origin in ["null", "", "http://evil.example", "localhost", "file://localhost", "http://localhost/x"] {
            assert!(check_loopback_names(Some("localhost"), Some(origin)).is_err(), "{origin:?}");
        }
    }
}
