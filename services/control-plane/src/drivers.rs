//! Which sandbox drivers work on this host.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_sandbox::SharedDriver;
use hearth_sandbox::docker::{DockerDriver, DockerOptions};
use hearth_sandbox::node::NodeOptions;

use crate::wiring::StartError;

/// The drivers in the order of preference, and what was found, in words.
pub(crate) async fn available(
    _variables: &BTreeMap<String, String>,
    node: &NodeOptions,
) -> Result<(Vec<SharedDriver>, String), StartError> {
    let options = DockerOptions { socket: None, state_dir: node.state_dir.clone(), image: node.image.clone() };
    let mut drivers: Vec<SharedDriver> = Vec::new();
    let said = match DockerDriver::probe(options).await {
        Ok(found) => {
            drivers.extend(found.into_iter().map(|driver| Arc::new(driver) as SharedDriver));
            "containers (docker)".to_owned()
        }
        Err(unusable) => format!("none: {unusable}"),
    };
    Ok((drivers, said))
}
