//! Which sandbox drivers work on this host.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::docker::{DockerDriver, DockerOptions, Unusable};
use crate::local::{Bwrap, LocalDriver, LocalOptions};
use crate::node::{NodeOptions, OptionsError};
use crate::{Error, SharedDriver};

/// Settings that choose the drivers, not the node.
pub const DRIVER_VARIABLES: &[&str] = &["SANDBOX_DRIVER", "SANDBOX_BWRAP"];

/// Why no driver can be used.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error(transparent)]
    Settings(#[from] OptionsError),
    #[error("SANDBOX_DRIVER is docker, and Docker cannot be used: {0}")]
    Docker(Unusable),
    #[error(transparent)]
    Local(#[from] Error),
}

/// The drivers in the order of preference, and what was found, in words. Containers where an engine
/// and the image are there, else confined processes; `SANDBOX_DRIVER` settles it.
pub async fn available_drivers(
    variables: &BTreeMap<String, String>,
    host_env: &BTreeMap<String, String>,
    node: &NodeOptions,
) -> Result<(Vec<SharedDriver>, String), Unavailable> {
    let wanted = one_of(variables, "SANDBOX_DRIVER", &["auto", "docker", "local"])?;
    let docker = DockerOptions::new(host_env, node.state_dir.clone(), node.image.clone());
    let why_not = match wanted {
        "local" => "SANDBOX_DRIVER=local".to_owned(),
        _ => match probe(docker).await {
            Ok(found) => {
                let names: Vec<&str> = found.iter().flat_map(DockerDriver::runtimes).map(String::as_str).collect();
                check_runtime(node, &names)?;
                let said = format!("containers from {} (docker)", node.image);
                return Ok((found.into_iter().map(|driver| Arc::new(driver) as SharedDriver).collect(), said));
            }
            Err(unusable) if wanted == "docker" => return Err(Unavailable::Docker(unusable)),
            Err(unusable) => unusable.to_string(),
        },
    };
    let bwrap = match one_of(variables, "SANDBOX_BWRAP", &["auto", "off"])? {
        "off" => Bwrap::Off,
        _ => Bwrap::Auto,
    };
    let options = LocalOptions { state_dir: node.state_dir.join("local"), bwrap, host_env: host_env.clone() };
    let local = LocalDriver::open(options).await?;
    check_runtime(node, &[])?;
    let said = format!("confined processes ({}), because: {why_not}", local.runtime());
    Ok((vec![Arc::new(local)], said))
}

/// A runtime that is not there stops the start: with it every open would be refused.
fn check_runtime(node: &NodeOptions, names: &[&str]) -> Result<(), OptionsError> {
    let Some(runtime) = node.runtime.as_ref().filter(|runtime| !names.contains(&runtime.as_str())) else {
        return Ok(());
    };
    let allowed = if names.is_empty() {
        "not set: sessions here are confined processes, which have no runtime to choose".to_owned()
    } else {
        names.join(", ")
    };
    Err(OptionsError { variable: "SANDBOX_RUNTIME".to_owned(), value: runtime.clone(), allowed })
}

async fn probe(options: Result<DockerOptions, Unusable>) -> Result<Vec<DockerDriver>, Unusable> {
    DockerDriver::probe(options?).await
}

/// The value of a variable that is one of a few words; the first where it is not set.
fn one_of<'v>(variables: &'v BTreeMap<String, String>, name: &str, words: &[&'v str]) -> Result<&'v str, OptionsError> {
    let value = match variables.get(name) {
        None => return Ok(words.first().copied().unwrap_or_default()),
        Some(value) => value.as_str(),
    };
    words.iter().copied().find(|word| *word == value).ok_or_else(|| OptionsError {
        variable: name.to_owned(),
        value: value.to_owned(),
        allowed: words.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_not_there_stops_the_start_and_names_those_that_are() {
        let node = |runtime: Option<&str>| NodeOptions {
            runtime: runtime.map(str::to_owned),
            ..NodeOptions::new("node-0", "/state")
        };
        for (runtime, names) in [(None, &[][..]), (None, &["runc"]), (Some("runsc"), &["runc", "runsc"])] {
            assert!(check_runtime(&node(runtime), names).is_ok(), "{runtime:?}");
        }
        let refused = check_runtime(&node(Some("banana")), &["runc", "runsc"]).unwrap_err();
        assert_eq!((refused.value.as_str(), refused.allowed.as_str()), ("banana", "runc, runsc"));
        assert!(check_runtime(&node(Some("runc")), &[]).unwrap_err().allowed.starts_with("not set"));
    }
}
