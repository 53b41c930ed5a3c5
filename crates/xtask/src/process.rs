//! Running other programs: nothing reads from standard input, and what they print is passed on.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(args);
    words.join(" ")
}

/// Cargo, as a shell in that folder would start it.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    // What cargo has told this process about itself: build scripts that look at it would run anew.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs to the end, with this process's output.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    std::io::stdout().flush().ok();
    let line = line(command);
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Program { line, reason: format!("ended with {status}") }),
        Err(error) => Err(Failure::Program { line, reason: error.to_string() }),
    }
}

/// Runs to the end and returns what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let line = line(command);
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Program { line: line.clone(), reason: error.to_string() })?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        let words = String::from_utf8_lossy(&done.stderr);
        Err(Failure::Program { line, reason: format!("ended with {}: {}", done.status, words.trim()) })
    }
}

/// Whether a program is on the path.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(standard).any(|folder| folder.join(program).is_file())
}

/// Whether this process may install packages and start daemons.
pub fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|text| text.trim() == "0")
}
