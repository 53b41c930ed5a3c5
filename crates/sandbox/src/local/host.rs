//! What of the host a local session sees: the programs on `PATH`, what these need, and nothing else
//! of the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Variables that say nothing about anybody.
const PLAIN: [&str; 5] = ["LANG", "LC_ALL", "LC_CTYPE", "TZ", "RUSTUP_TOOLCHAIN"];
/// Where toolchains are, and where they look when nothing is said: below a home that a session does
/// not have.
const TOOLCHAINS: [(&str, Option<&str>); 5] = [
    ("RUSTUP_HOME", Some(".rustup")),
    ("PYENV_ROOT", Some(".pyenv")),
    ("JAVA_HOME", None),
    ("GOROOT", None),
    ("DOTNET_ROOT", None),
];
/// Beside a `bin`, what its programs need. Not `share`: below a home, keyrings are there.
const BESIDE_BIN: [&str; 4] = ["lib", "lib64", "libexec", "include"];
/// Folders that every session sees anyway.
pub const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// `PATH` without what cannot be shown.
    pub path: String,
    pub env: BTreeMap<String, String>,
    /// To be seen at their own place, read-only: none holds another, none is below [`SYSTEM`].
    pub folders: Vec<PathBuf>,
}

impl Host {
    pub fn of(env: &BTreeMap<String, String>) -> Self {
        let home = env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.as_deref();
        let mut host = Self::default();
        let mut folders = Vec::new();
        for name in PLAIN {
            if let Some(value) = env.get(name) {
                host.env.insert(name.to_owned(), value.clone());
            }
        }
        for (name, fallback) in TOOLCHAINS {
            let named = env.get(name).map(PathBuf::from);
            let folder = named.or_else(|| Some(home?.join(fallback?)));
            if let Some(folder) = folder.filter(|folder| shown(folder, home))
                && let Some(text) = folder.to_str()
            {
                host.env.insert(name.to_owned(), text.to_owned());
                folders.push(folder);
            }
        }
        let path: Vec<&str> = env.get("PATH").map(|path| path.split(':').collect()).unwrap_or_default();
        let mut kept: Vec<&str> = Vec::new();
        for element in path {
            let folder = Path::new(element);
            if kept.contains(&element) || !shown(folder, home) {
                continue;
            }
            kept.push(element);
            folders.push(folder.to_owned());
            if let (Some("bin"), Some(prefix)) = (folder.file_name().and_then(|name| name.to_str()), folder.parent()) {
                let beside = BESIDE_BIN.iter().map(|name| prefix.join(name));
                folders.extend(beside.filter(|folder| shown(folder, home)));
            }
        }
        host.path = kept.join(":");
        host.folders = outermost(folders);
        host
    }
}

/// Whether a folder is there and no wider than a toolchain: not the home, nor anything above it.
fn shown(folder: &Path, home: Option<&Path>) -> bool {
    if !folder.is_absolute() || !folder.is_dir() {
        return false;
    }
    // Named by its links too, so that `/home/me/x -> /home/me` does not pass.
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let wide = |home: &Path| home.starts_with(&real);
    real != Path::new("/") && !home.is_some_and(|home| wide(home) || home.canonicalize().is_ok_and(|home| wide(&home)))
}

fn outermost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let covered = SYSTEM.iter().any(|system| folder.starts_with(system))
            || kept.iter().any(|other| folder.starts_with(other));
        if !covered {
            kept.push(folder);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(home: &Path, vars: &[(&str, &str)]) -> Host {
        let mut env: BTreeMap<_, _> =
            vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.insert("HOME".to_owned(), home.to_str().unwrap().to_owned());
        Host::of(&env)
    }

    #[test]
    fn secrets_of_the_hosts_environment_and_home_stay_outside() {
        let home = tempfile::tempdir().unwrap();
        for folder in [".cargo/bin", ".rustup", ".ssh", ".local/bin", ".local/lib", ".local/share"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let at = |folder: &str| home.path().join(folder).to_str().unwrap().to_owned();
        let path = [
            at(".cargo/bin"),
            at(".local/bin"),
            at(""),
            at("none"),
            ".".to_owned(),
            "/usr/bin".to_owned(),
            "/".to_owned(),
        ];
        let host = host(home.path(), &[("PATH", &path.join(":")), ("AWS_SECRET_ACCESS_KEY", "x"), ("LANG", "C.UTF-8")]);
        assert_eq!(host.path, [at(".cargo/bin"), at(".local/bin"), "/usr/bin".to_owned()].join(":"));
        let names: Vec<_> = host.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["LANG", "RUSTUP_HOME"]);
        let folders = [".cargo/bin", ".local/bin", ".local/lib", ".rustup"].map(|folder| home.path().join(folder));
        assert_eq!(host.folders, folders);
    }

    #[test]
    fn a_link_to_the_home_is_as_wide_as_the_home() {
        let home = tempfile::tempdir().unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        assert_eq!(host(home.path(), &[("PATH", link.to_str().unwrap())]).folders, Vec::<PathBuf>::new());
    }
}
