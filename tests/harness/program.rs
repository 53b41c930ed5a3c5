//! Where the program under test is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The `hearth` binary: `HEARTH_BIN`, or else built here from the workspace, once per test process.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("HEARTH_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of the workspace");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--quiet", "--package", "hearth"])
        .stdin(Stdio::null())
        .status()
        .expect("cargo starts");
    assert!(built.success(), "`cargo build -p hearth` failed; its output says why");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("debug/hearth")
}

/// The program, without the tester's own settings.
pub fn program() -> Command {
    let mut command = Command::new(binary());
    without_own_settings(&mut command);
    command
}

/// The tester's own settings must not reach the program.
pub(crate) fn without_own_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["HEARTH_", "SANDBOX_", "OTEL_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
}
