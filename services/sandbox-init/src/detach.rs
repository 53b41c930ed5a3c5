//! Starting a process that outlives its starter: a session of its own, no terminal, no open files of
//! the starter, and no parent that would have to wait for it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// `log` takes what the command writes to its standard error, so that a start that fails can be told.
pub fn detach(words: &[OsString], log: Option<&Path>) -> io::Result<()> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(log) = log {
        command.stderr(OpenOptions::new().create(true).append(true).open(log)?);
    }
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe and allocates
    // nothing.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    // Not waited for: this program ends at once, and the child is then adopted by the system's init.
    let child = command.spawn()?;
    let mut out = io::stdout();
    writeln!(out, "{}", child.id())?;
    out.flush()
}
