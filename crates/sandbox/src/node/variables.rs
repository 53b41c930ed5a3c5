//! Which variables a command's environment may be given.

use std::collections::BTreeMap;

use hearth_types::{Fault, FaultCode};

const MAX_VARIABLES: usize = 256;
const MAX_NAME_BYTES: usize = 128;
/// Names and values together. The init takes 512 KiB, and the session has variables of its own.
const MAX_BYTES: usize = 256 * 1024;
/// Linux takes 128 KiB for one, with its name, the sign and the end.
const MAX_VARIABLE_BYTES: usize = 128 * 1024 - 2;

/// What decides which program runs, or what runs before it. A secret of such a name is a mistake, or
/// an attack by whoever may set a header; a command can set them itself.
const RESERVED: [&str; 41] = [
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "LOGNAME",
    "PWD",
    "OLDPWD",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "TMPDIR",
    "CDPATH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "GCONV_PATH",
    "LOCPATH",
    "HOSTALIASES",
    "RESOLV_HOST_CONF",
    "NODE_OPTIONS",
    "NODE_PATH",
    "RUBYLIB",
    "RUBYOPT",
    "PERLLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "MAKEFLAGS",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "GOFLAGS",
    "GOROOT",
    "LESSOPEN",
    "LESSCLOSE",
    "PIP_CONFIG_FILE",
];
/// The loader's and the shell's; git runs what several of its variables name, and interpreters what theirs do.
const RESERVED_PREFIXES: [&str; 8] =
    ["LD_", "BASH_FUNC_", "GLIBC_", "DYLD_", "PYTHON", "PERL5", "MALLOC_", "SSH_ASKPASS"];
/// Of git's variables, those that run nothing and change no place of files.
const GIT_TOKENS: [&str; 4] = ["GIT_TOKEN", "GIT_PASSWORD", "GIT_USERNAME", "GIT_USER"];

/// The command's own variables and the caller's secrets in one. A fault names names, never values.
pub(crate) fn merged(
    own: Option<BTreeMap<String, String>>,
    secrets: &BTreeMap<String, String>,
    injection_allowed: bool,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut merged = own.unwrap_or_default();
    for (name, value) in &merged {
        check("env", name, value)?;
    }
    check_secrets(secrets, injection_allowed)?;
    for (name, value) in secrets {
        if merged.insert(name.clone(), value.clone()).is_some() {
            return Err(Fault::invalid(&format!("env.{name}"), "set", "a name that no secret of the caller has"));
        }
    }
    let bytes: usize = merged.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if merged.len() > MAX_VARIABLES || bytes > MAX_BYTES {
        let shown = format!("{} variables of {bytes} bytes", merged.len());
        return Err(Fault::invalid("env", shown, &format!("{MAX_VARIABLES} variables, {MAX_BYTES} bytes in all")));
    }
    Ok(merged)
}

/// Whether the caller's secrets can be taken. A fault names names, never values.
pub fn check_secrets(secrets: &BTreeMap<String, String>, injection_allowed: bool) -> Result<(), Fault> {
    if !secrets.is_empty() && !injection_allowed {
        return Err(refused("secrets are not taken here: the operator allows them with SANDBOX_ALLOW_ENV_INJECTION"));
    }
    for (name, value) in secrets {
        check("secrets", name, value)?;
        if is_reserved(name) {
            let reason = format!("a secret cannot be named {name}: such a variable decides what a program runs");
            return Err(refused(&reason));
        }
    }
    Ok(())
}

fn is_reserved(name: &str) -> bool {
    let git = name.starts_with("GIT_") && !GIT_TOKENS.contains(&name);
    git || RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn refused(reason: &str) -> Fault {
    Fault::new(FaultCode::ToolRefused, reason)
}

fn check(field: &str, name: &str, value: &str) -> Result<(), Fault> {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().next().is_some_and(first)
        && name.bytes().all(|b| first(b) || b.is_ascii_digit());
    if !fits {
        return Err(Fault::invalid(field, name, "names of the form [A-Za-z_][A-Za-z0-9_]*, at most 128 characters"));
    }
    if value.contains('\0') || name.len() + value.len() > MAX_VARIABLE_BYTES {
        let allowed = format!("text without NUL, with its name at most {MAX_VARIABLE_BYTES} bytes");
        return Err(Fault::invalid(&format!("{field}.{name}"), "(not shown)", &allowed));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn both_kinds_are_merged() {
        let merged = merged(Some(map(&[("A", "1")])), &map(&[("GH_TOKEN", "s3cret")]), true).unwrap();
        assert_eq!(merged, map(&[("A", "1"), ("GH_TOKEN", "s3cret")]));
    }

    #[test]
    fn a_secret_is_refused_where_they_are_not_allowed_or_under_a_reserved_name() {
        let refusal = |name: &str, allowed| merged(None, &map(&[(name, "s3cret")]), allowed).unwrap_err();
        assert_eq!(refusal("GH_TOKEN", false).code, FaultCode::ToolRefused);
        let harmful = [
            "PATH",
            "HOME",
            "LD_PRELOAD",
            "LD_AUDIT",
            "BASH_ENV",
            "BASH_FUNC_ls",
            "GIT_SSH_COMMAND",
            "GIT_ASKPASS",
            "GIT_CONFIG_COUNT",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "NODE_OPTIONS",
        ];
        for name in harmful {
            let fault = refusal(name, true);
            assert_eq!(fault.code, FaultCode::ToolRefused, "{name}");
            assert!(!fault.to_body().to_string().contains("s3cret"));
        }
        for name in ["GH_TOKEN", "GIT_TOKEN", "AWS_SECRET_ACCESS_KEY", "NPM_TOKEN"] {
            assert!(merged(None, &map(&[(name, "s3cret")]), true).is_ok(), "{name}");
        }
        assert!(!refusal("a-b", true).to_body().to_string().contains("s3cret"));
        assert!(merged(Some(map(&[("PATH", "/opt")])), &map(&[]), false).is_ok(), "a command may set its own");
    }

    #[test]
    fn names_that_no_shell_takes_are_invalid() {
        for name in ["", "1A", "A B", "A=B", "Ä"] {
            let fault = merged(Some(map(&[(name, "1")])), &map(&[]), false).unwrap_err();
            assert_eq!(fault.code, FaultCode::InvalidArgument, "{name:?}");
        }
        assert!(merged(Some(map(&[("A", "a\0b")])), &map(&[]), false).is_err());
        let half = "x".repeat(MAX_VARIABLE_BYTES - 1);
        assert!(merged(Some(map(&[("A", &half)])), &map(&[]), false).is_ok());
        let fault = merged(Some(map(&[("A", &(half.clone() + "x"))])), &map(&[]), false).unwrap_err();
        assert!(fault.message.contains("env.A") && fault.message.len() < 300, "{fault}");
        assert!(merged(Some(map(&[("A", &half), ("B", &half), ("C", "1")])), &map(&[]), false).is_err());
    }

    #[test]
    fn a_name_given_twice_is_invalid() {
        let fault = merged(Some(map(&[("A", "1")])), &map(&[("A", "2")]), true).unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument);
    }
}
