//! Forking an exec's supervisor, which forks the command.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, Mode, OFlags, access, memfd_create, open};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Pid;

use super::maker::{Made, Maker};
use super::plain::{Plain, plain};
use super::spare::{Channel, Spare};
use super::supervise;
use crate::wire::ExecRequest;

/// Room in the pipe between a command and the init: fewer wake-ups under a flood.
const PIPE_BYTES: usize = 256 * 1024;

/// What every command of the session starts from.
#[derive(Debug)]
pub struct Base {
    pub shell: CString,
    shell_name: CString,
    env: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A supervisor that was forked, and what it is heard by.
#[derive(Debug)]
pub struct Launched {
    pub supervisor: Pid,
    /// Output of the command, for reading without waiting.
    pub output: OwnedFd,
    /// The supervisor's word on how the command ended; closed when the supervisor is gone.
    pub status: OwnedFd,
}

/// A command, and what it starts with.
#[derive(Debug)]
pub struct Job<R> {
    pub request: R,
    pub cwd: OwnedFd,
    pub stdin: OwnedFd,
}

/// Where the forked process has its command from.
#[derive(Debug)]
pub enum Source<'a> {
    Known(Job<&'a ExecRequest>),
    /// There was none yet.
    Awaited(Channel),
}

/// All that the forked processes need, made before the fork.
#[derive(Debug)]
pub struct Plan<'a> {
    pub base: &'a Base,
    pub source: Source<'a>,
    /// Both standard output and standard error.
    pub output: OwnedFd,
    pub status: OwnedFd,
    pub init: Pid,
}

impl Plan<'_> {
    pub fn descriptors(&self) -> Vec<RawFd> {
        let source = match &self.source {
            Source::Known(job) => vec![job.cwd.as_raw_fd(), job.stdin.as_raw_fd()],
            Source::Awaited(channel) => vec![channel.fd().as_raw_fd()],
        };
        [vec![self.output.as_raw_fd(), self.status.as_raw_fd()], source].concat()
    }
}

/// What the command's process becomes by the way of a shell, or without one.
pub struct Program {
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
    /// Instead of the shell, if that has nothing to do.
    pub plain: Option<Plain>,
}

impl Base {
    /// The shell and the environment of this process.
    pub fn of_process() -> io::Result<Self> {
        let mut env: Vec<_> =
            std::env::vars_os().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let shell = find_shell(&path).ok_or_else(|| io::Error::other("there is neither bash nor sh"))?;
        let name = shell.file_name().unwrap_or_default().as_bytes().to_vec();
        if env.iter().all(|(name, _)| name != b"SHELL") {
            // A shell that is not told looks its user up, at each start.
            env.push((b"SHELL".to_vec(), shell.as_os_str().as_bytes().to_vec()));
        }
        Ok(Self { shell: CString::new(shell.as_os_str().as_bytes())?, shell_name: CString::new(name)?, env })
    }

    pub fn program(&self, request: &ExecRequest) -> io::Result<Program> {
        let env = self.env(&request.env);
        let entry = |(name, value): &(&[u8], &[u8])| Ok(CString::new([*name, b"=", *value].concat())?);
        Ok(Program {
            argv: self.argv(&request.command)?,
            envp: env.iter().map(entry).collect::<io::Result<_>>()?,
            // What another shell has built in is not known.
            plain: if self.shell_name.as_bytes() == b"bash" { plain(&request.command, &env) } else { None },
        })
    }

    fn argv(&self, command: &[u8]) -> io::Result<Vec<CString>> {
        let mut text = Vec::with_capacity(command.len() + 1);
        // A command that begins like an option would be taken for one, and not every `sh` knows `--`.
        if command.starts_with(b"-") || command.starts_with(b"+") {
            text.push(b' ');
        }
        text.extend_from_slice(command);
        Ok(vec![self.shell_name.clone(), CString::new("-c")?, CString::new(text)?])
    }

    fn env<'a>(&'a self, own: &'a [(Vec<u8>, Vec<u8>)]) -> Vec<(&'a [u8], &'a [u8])> {
        let overridden = |name: &[u8]| own.iter().any(|(other, _)| other == name);
        let base = self.env.iter().filter(|(name, _)| !overridden(name));
        base.chain(own).map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
    }
}

/// Starts commands, each below a supervisor of its own. Once there was a command, a supervisor with a process for
/// the next one waits, so that it need not be forked while somebody waits for the command.
#[derive(Debug)]
pub struct Launcher {
    base: Base,
    keeps_spare: bool,
    spare: Option<Spare>,
    maker: Option<Maker>,
}

impl Launcher {
    pub const fn new(base: Base, keeps_spare: bool) -> Self {
        Self { base, keeps_spare, spare: None, maker: None }
    }

    pub fn launch(&mut self, request: &ExecRequest, stdin: &[u8], cwd: OwnedFd) -> io::Result<Launched> {
        let job = Job { request, cwd, stdin: input(stdin)? };
        self.take_made();
        let launched = match self.give_spare(job) {
            Ok(launched) => launched,
            Err(job) => self.fork(Source::Known(job))?,
        };
        self.ask_for_spare();
        Ok(launched)
    }

    fn give_spare<'a>(&mut self, job: Job<&'a ExecRequest>) -> Result<Launched, Job<&'a ExecRequest>> {
        match self.spare.take() {
            Some(spare) => spare.give(job),
            None => Err(job),
        }
    }

    /// Forks the maker. Before the first command, so that what makes the processes of others has no copy of its
    /// environment.
    pub fn prepare(&mut self) {
        if self.keeps_spare && self.maker.is_none() {
            self.maker = Maker::start(&self.base).ok();
        }
    }

    /// Where none can be made, the next command is forked for.
    fn ask_for_spare(&mut self) {
        if !self.keeps_spare || self.spare.is_some() {
            return;
        }
        self.prepare();
        if self.maker.as_mut().is_some_and(|maker| !maker.ask()) {
            self.maker = None;
        }
    }

    /// What the maker is heard by, while it is making one.
    pub fn line(&self) -> Option<&OwnedFd> {
        self.maker.as_ref().filter(|maker| maker.asked()).map(Maker::line)
    }

    /// Takes what the maker has made, if anything.
    pub fn take_made(&mut self) {
        match self.maker.as_mut().map(Maker::take) {
            Some(Made::Spare(spare)) => self.spare = Some(spare),
            Some(Made::Gone) => self.maker = None,
            Some(Made::Nothing) | None => {}
        }
    }

    /// Who waits for a command that is yet to come, and who makes the next.
    pub fn own(&self) -> impl Iterator<Item = Pid> {
        self.spare.as_ref().map(Spare::supervisor).into_iter().chain(self.maker.as_ref().map(Maker::process))
    }

    /// One of them has ended; whether it was one.
    pub fn forget(&mut self, process: Pid) -> bool {
        let spare = self.spare.take_if(|spare| spare.supervisor() == process).is_some();
        self.maker.take_if(|maker| maker.process() == process).is_some() || spare
    }

    fn fork(&self, source: Source<'_>) -> io::Result<Launched> {
        let init = rustix::process::getpid();
        start_supervisor(&self.base, source, init, |plan| {
            // SAFETY: this process has one thread, so the child may do whatever the parent might; it never
            // returns from `supervise`, and so drops nothing that the parent still owns.
            match unsafe { libc::fork() } {
                0 => supervise::supervise(plan),
                pid => pid,
            }
        })
    }
}

/// Starts a supervisor by this way of forking, which gives the id of the fork.
pub fn start_supervisor(
    base: &Base,
    source: Source<'_>,
    init: Pid,
    fork: impl FnOnce(&Plan<'_>) -> i32,
) -> io::Result<Launched> {
    let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
    // Refused when the user has many pipes already; the default size works too.
    fcntl_setpipe_size(&output, PIPE_BYTES).ok();
    rustix::io::ioctl_fionbio(&output, true)?;
    let (status, status_end) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&status, true)?;
    let plan = Plan { base, source, output: output_end, status: status_end, init };
    let pid = fork(&plan);
    let supervisor = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?;
    Ok(Launched { supervisor, output, status })
}

/// `PATH` first: some systems have their shell nowhere else.
fn find_shell(path: &OsStr) -> Option<PathBuf> {
    let folders = || std::env::split_paths(path).chain(["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    ["bash", "sh"].iter().find_map(|name| {
        folders().filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|file| is_program(file))
    })
}

pub fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Standard input as a file, so that nobody has to feed it: it ends where it ends.
fn input(bytes: &[u8]) -> io::Result<OwnedFd> {
    if bytes.is_empty() {
        return Ok(open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    }
    let mut file = File::from(memfd_create(c"stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Pointers for `execve`, ended by a null.
pub fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| CStr::as_ptr(string)).chain(std::iter::once(std::ptr::null())).collect()
}
