//! The environment that every session gives its commands, whichever driver runs it: a home, caches and
//! user-level install prefixes inside `/work`, so that they last as long as the workspace does.

use std::collections::BTreeMap;

/// Where `HOME` is: inside the workspace, so that installs and caches carry over; where that may not be
/// written, in the session's `/tmp`.
pub fn session_home(workspace_path: &str, read_only: bool) -> String {
    if read_only { "/tmp/home".to_owned() } else { format!("{}/.home", workspace_path.trim_end_matches('/')) }
}

/// All but `PATH`, for which see [`session_path`]: an image or a host brings its own.
pub fn session_env(home: &str) -> BTreeMap<String, String> {
    let under_home = [
        ("HOME", ""),
        ("XDG_CACHE_HOME", "/.cache"),
        ("XDG_CONFIG_HOME", "/.config"),
        ("XDG_DATA_HOME", "/.local/share"),
        ("XDG_STATE_HOME", "/.local/state"),
        ("CARGO_HOME", "/.cargo"),
        ("CARGO_TARGET_DIR", "/.cache/cargo-target"),
        ("GOPATH", "/go"),
        ("GOCACHE", "/.cache/go-build"),
        ("GOMODCACHE", "/go/pkg/mod"),
        ("npm_config_cache", "/.cache/npm"),
        ("npm_config_prefix", "/.local"),
        ("YARN_CACHE_FOLDER", "/.cache/yarn"),
        ("PIP_CACHE_DIR", "/.cache/pip"),
        ("PYTHONUSERBASE", "/.local"),
        ("GRADLE_USER_HOME", "/.gradle"),
    ];
    let mut env: BTreeMap<String, String> =
        under_home.iter().map(|(name, tail)| ((*name).to_owned(), format!("{home}{tail}"))).collect();
    // A session is thrown away, so pip has no system to protect; without it a plain `pip install` is
    // refused by the distributions that mark their Python as theirs.
    env.insert("PIP_BREAK_SYSTEM_PACKAGES".to_owned(), "1".to_owned());
    env
}

/// `PATH` with the user-level install prefixes of [`session_env`] before what the image or the host has.
pub fn session_path(home: &str, base: &str) -> String {
    let mut path = format!("{home}/.local/bin:{home}/.cargo/bin:{home}/go/bin");
    if !base.is_empty() {
        path.push(':');
        path.push_str(base);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_and_cache_is_under_the_home() {
        let home = session_home("/work/", false);
        assert_eq!(home, "/work/.home");
        for (name, value) in session_env(&home) {
            assert!(value.starts_with(&home) || name == "PIP_BREAK_SYSTEM_PACKAGES", "{name}={value}");
        }
        assert!(session_path(&home, "/usr/bin").ends_with(":/usr/bin"));
    }
}
