//! What the init gives up before it serves anybody.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::{fs, io};

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, getgid, getuid, set_child_subreaper, set_dumpable_behavior,
    setrlimit,
};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};

use crate::options::Options;

/// Commands are killed before the init when memory runs out; a process may always raise its own score.
const COMMAND_OOM_SCORE: &str = "500";

/// Limits, network and rights, in the order in which each can still be given up.
pub fn confine(options: &Options) -> io::Result<()> {
    if options.cut_network {
        cut_network()?;
    }
    limit(Resource::Core, Some(0))?;
    limit(Resource::Data, options.max_data)?;
    limit(Resource::Fsize, options.max_file)?;
    limit(Resource::Nproc, options.max_processes)?;
    if let Some((uid, gid)) = options.user {
        for folder in &options.own {
            hand_over(folder, uid, gid)?;
        }
        become_user(uid, gid)?;
    }
    set_no_new_privs(true)?;
    // What orphans a dead supervisor leaves come here, and not to the host's init.
    set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    // Code of the same user may otherwise read this memory, or attach to it and drive it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Makes the home that the environment names, where it is missing; a command finds out if it cannot be.
pub fn make_home() {
    if let Some(home) = std::env::var_os("HOME") {
        let home = Path::new(&home);
        if home.is_absolute() && !home.exists() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(home).ok();
        }
    }
}

/// Called in the process that is to become a command.
pub fn mark_for_oom() {
    // The files of a process that cannot be dumped belong to root. Until it cannot be again, and while nobody waits
    // for it, code of the same user may see in it what it may see of the command before.
    if set_dumpable_behavior(DumpableBehavior::Dumpable).is_ok() {
        fs::write("/proc/self/oom_score_adj", COMMAND_OOM_SCORE).ok();
        set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}

/// Soft and hard: what is given up cannot be taken back. A lower hard limit that is there stays.
fn limit(resource: Resource, most: Option<u64>) -> io::Result<()> {
    let Some(most) = most else { return Ok(()) };
    let hard = rustix::process::getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })?;
    Ok(())
}

/// Not recursive: these are fresh mounts of the session's own.
fn hand_over(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let owner = fs::symlink_metadata(folder)?;
    if (owner.uid(), owner.gid()) != (uid, gid) {
        std::os::unix::fs::lchown(folder, Some(uid), Some(gid))?;
    }
    Ok(())
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    if geteuid().as_raw() == uid && getgid().as_raw() == gid {
        return Ok(());
    }
    // Per thread by the kernel's rules; this process has one.
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(gid))?;
    set_thread_uid(Uid::from_raw(uid))?;
    Ok(())
}

/// Leaves the host's network for one that has only a loopback. A user who may not do that does it
/// inside a user namespace of its own, in which it stays itself.
pub fn cut_network() -> io::Result<()> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: a new network namespace leaves memory and open files alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        // SAFETY: the same, and this process has one thread, as a new user namespace demands.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    loopback_up()
}

fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an all-zero `ifreq` is a valid one; the kernel reads the name, which is NUL-terminated by
    // those zeroes, and the flags. The socket is open for as long as the call lasts.
    let result = unsafe {
        let mut request = std::mem::zeroed::<libc::ifreq>();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &raw const request)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
