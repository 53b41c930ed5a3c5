//! How a local session is confined: what is started for it, with which arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::clear::{MARK, NAME_OPTION};
use super::host::{Host, SYSTEM};
use super::record::Folder;
use crate::driver::{Network, SESSION_GID, SESSION_UID, SessionSpec, Work};
use crate::env::{session_env, session_home, session_path};
use crate::spec::NO_SPARE;

/// Parts of `/etc` that programs need and that hold no secrets.
const ETC: [&str; 34] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "openssl",
    "os-release",
    "passwd",
    "perl",
    "php",
    "pki",
    "protocols",
    "python3",
    "rpc",
    "services",
    "shells",
    "ssl",
    "static",
    "terminfo",
    "timezone",
    "xml",
];
/// Beside the network itself.
const ETC_NETWORK: [&str; 2] = ["resolv.conf", "gai.conf"];
/// Of `/tmp` and `/dev/shm`, each.
const SCRATCH_MB: u64 = 512;
const MIB: u64 = 1024 * 1024;
/// Where a session with namespaces of its own sees things.
const WORK: &str = "/work";
const SHARED: &str = "/run/hearth";
const INIT: &str = "/run/hearth-init";

/// What holds a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// Namespaces of its own, made by bubblewrap.
    Bwrap {
        program: PathBuf,
        /// Whether it can limit the size of a tmpfs, as it can from 0.7 on.
        sized: bool,
    },
    /// A process tree in a folder.
    Process {
        /// Whether the init can leave the host's network.
        cut_network: bool,
    },
}

/// What a start needs beside the session's spec.
#[derive(Debug, Clone)]
pub struct Ground {
    pub confinement: Confinement,
    pub host: Host,
    /// The installed init.
    pub init: PathBuf,
    /// Whether this process is root.
    pub root: bool,
    /// The user that sessions become; absent: the one of this process.
    pub user: Option<(u32, u32)>,
}

/// A command line with its whole environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub words: Vec<OsString>,
    pub env: BTreeMap<String, String>,
    pub workspace_path: String,
}

impl Confinement {
    pub const fn runtime(&self) -> &'static str {
        match self {
            Self::Bwrap { .. } => "bwrap",
            Self::Process { .. } => "process",
        }
    }
}

impl Ground {
    pub fn launch(&self, spec: &SessionSpec, folder: &Folder) -> Launch {
        match &self.confinement {
            Confinement::Bwrap { program, sized } => self.in_namespaces(program, *sized, spec, folder),
            Confinement::Process { cut_network } => self.as_process(*cut_network, spec, folder),
        }
    }

    fn in_namespaces(&self, program: &Path, sized: bool, spec: &SessionSpec, folder: &Folder) -> Launch {
        let mut words = Words { sized, ..Words::default() };
        words.push(program);
        words.all(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--as-pid-1"]);
        words.all(["--hostname", "sandbox"]);
        if spec.network == Network::None {
            words.push("--unshare-net");
        }
        if self.root {
            // Only for the init, and only until it has become the session's user.
            words.all(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_CHOWN"]);
        } else {
            words.push("--unshare-user");
        }
        self.mount_host(&mut words, spec.network);
        words.all(["--proc", "/proc", "--dev", "/dev"]);
        words.tmpfs(SCRATCH_MB, "1777", "/dev/shm");
        words.tmpfs(SCRATCH_MB, "1777", "/tmp");
        match &spec.work {
            Work::Tmpfs { mb } => words.tmpfs(*mb, "0755", WORK),
            Work::Durable { host_dir, read_only: false } => words.bind("--bind", host_dir, WORK),
            Work::Durable { host_dir, read_only: true } => words.bind("--ro-bind", host_dir, WORK),
        }
        words.bind("--bind", folder.shared(), SHARED);
        words.bind("--ro-bind", &self.init, INIT);
        words.all(["--remount-ro", "/", "--chdir", WORK, "--", INIT]);
        words.serve(spec, &Path::new(SHARED).join("s"), Path::new(WORK));
        if let Some((uid, gid)) = self.user {
            words.user(uid, gid);
            if matches!(spec.work, Work::Tmpfs { .. }) {
                words.all(["--own", WORK]);
            }
        } else if let Some(pids) = spec.limits.pids {
            // In a user namespace of its own, the user's processes are the session's.
            words.number("--max-processes", pids);
        }
        let env = self.env(spec, WORK, None);
        Launch { words: words.list, env, workspace_path: WORK.to_owned() }
    }

    fn mount_host(&self, words: &mut Words, network: Network) {
        for folder in SYSTEM.map(Path::new) {
            match folder.read_link() {
                Ok(target) => {
                    words.push("--symlink");
                    words.push(target);
                    words.push(folder);
                }
                Err(_) => words.bind("--ro-bind-try", folder, folder),
            }
        }
        // Left to itself, bubblewrap makes the folders on the way such that only root passes them.
        let above = self.host.folders.iter().flat_map(|folder| folder.ancestors().skip(1));
        let above = above.filter(|folder| *folder != Path::new("/")).chain(["/etc", "/run"].map(Path::new));
        for folder in above.collect::<BTreeSet<&Path>>() {
            words.all(["--perms", "0755", "--dir"]);
            words.push(folder);
        }
        let network = ETC_NETWORK.into_iter().filter(|_| network == Network::Egress);
        for name in ETC.into_iter().chain(network) {
            let path = Path::new("/etc").join(name);
            words.bind("--ro-bind-try", &path, &path);
        }
        for folder in &self.host.folders {
            words.bind("--ro-bind", folder, folder);
        }
    }

    fn as_process(&self, cut_network: bool, spec: &SessionSpec, folder: &Folder) -> Launch {
        let root = match &spec.work {
            Work::Tmpfs { .. } => folder.work(),
            Work::Durable { host_dir, .. } => host_dir.clone(),
        };
        let mut words = Words::default();
        words.push(&self.init);
        words.serve(spec, &folder.socket(), &root);
        words.all(["--alias", WORK]);
        if let Work::Tmpfs { mb } = spec.work {
            // Of one file, where the whole cannot be limited.
            words.number("--max-file", mb.saturating_mul(MIB));
        }
        if cut_network && spec.network == Network::None {
            words.push("--cut-network");
        }
        if let Some((uid, gid)) = self.user {
            words.user(uid, gid);
        }
        let workspace_path = root.to_string_lossy().into_owned();
        let env = self.env(spec, &workspace_path, Some(&folder.tmp()));
        Launch { words: words.list, env, workspace_path }
    }

    /// All that the session's processes inherit; nothing of this process's own environment.
    fn env(&self, spec: &SessionSpec, workspace_path: &str, tmp: Option<&Path>) -> BTreeMap<String, String> {
        let read_only = matches!(spec.work, Work::Durable { read_only: true, .. });
        let home = match tmp {
            Some(tmp) if read_only => tmp.join("home").to_string_lossy().into_owned(),
            _ => session_home(workspace_path, read_only),
        };
        let mut env = session_env(&home);
        env.extend(self.host.env.clone());
        env.insert("PATH".to_owned(), session_path(&home, &self.host.path));
        if let Some(tmp) = tmp {
            env.insert("TMPDIR".to_owned(), tmp.to_string_lossy().into_owned());
        }
        env.extend(spec.env.clone());
        env.insert(MARK.to_owned(), spec.session.to_string());
        env
    }
}

/// The user of sessions when this process may choose: root does not run them as itself.
pub const fn session_user(root: bool) -> Option<(u32, u32)> {
    if root { Some((SESSION_UID, SESSION_GID)) } else { None }
}

#[derive(Default)]
struct Words {
    list: Vec<OsString>,
    sized: bool,
}

impl Words {
    fn push(&mut self, word: impl AsRef<OsStr>) {
        self.list.push(word.as_ref().to_owned());
    }

    fn all<const N: usize>(&mut self, words: [&str; N]) {
        self.list.extend(words.map(OsString::from));
    }

    fn number(&mut self, name: &str, value: impl ToString) {
        self.push(name);
        self.push(value.to_string());
    }

    fn bind(&mut self, how: &str, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
        self.push(how);
        self.push(from);
        self.push(to);
    }

    fn tmpfs(&mut self, mb: u64, mode: &str, at: &str) {
        if self.sized {
            self.number("--size", mb.saturating_mul(MIB));
        }
        self.all(["--perms", mode, "--tmpfs", at]);
    }

    fn user(&mut self, uid: u32, gid: u32) {
        self.number("--uid", uid);
        self.number("--gid", gid);
    }

    fn serve(&mut self, spec: &SessionSpec, socket: &Path, root: &Path) {
        self.all(["serve", NAME_OPTION, spec.session.as_str(), "--socket-mode", "600", "--socket"]);
        self.push(socket);
        self.push("--root");
        self.push(root);
        self.number("--deadline-ms", spec.deadline.as_millis().max(0));
        if let Some(mem_mb) = spec.limits.mem_mb {
            self.number("--max-data", mem_mb.saturating_mul(MIB));
        }
        if !spec.has_room_for_a_spare() {
            self.push(NO_SPARE);
        }
    }
}
