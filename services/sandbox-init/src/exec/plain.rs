//! Commands that need no shell: a program and its arguments, and nothing that a shell would act on.
//!
//! Such a command becomes the program at once, as `make` and others do it: a shell would have taken a
//! millisecond to begin, to do the same at the end. Whatever is in doubt goes to the shell, and so does
//! what cannot be started, so that the words of an error are always the shell's.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::launch::is_program;

/// What `bash` takes for itself, whatever programs of that name there are.
const ITS_OWN: &[&str] = &[
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
    ".",
    ":",
];

/// Variables by which an environment tells a `bash` to do something before or while it runs a command, or
/// that it would count on from.
const HEEDED: &[&[u8]] = &[
    b"BASH_ENV",
    b"ENV",
    b"SHELLOPTS",
    b"BASHOPTS",
    b"BASH_COMPAT",
    b"POSIXLY_CORRECT",
    b"EXECIGNORE",
    b"PWD",
    b"SHLVL",
];

/// What a command without a shell is: it looks for its program as late as it can, in its own process.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain {
    pub argv: Vec<CString>,
    /// As `bash` would have made it, but for the folder and the program, which are known only at the end.
    pub envp: Vec<CString>,
    path: Vec<u8>,
}

/// The command as a program and its arguments, if nothing of it is for a shell.
pub fn plain(command: &[u8], env: &[(&[u8], &[u8])]) -> Option<Plain> {
    if !command.iter().all(|byte| is_plain(*byte)) {
        return None;
    }
    let words: Vec<&[u8]> =
        command.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).collect();
    let name = *words.first()?;
    // By themselves a shell's do as the system's, and no other of that name counts.
    let same = matches!(words[..], [b"true" | b"false"]);
    let own = std::str::from_utf8(name).map_or(true, |name| ITS_OWN.contains(&name));
    if (own && !same) || name.contains(&b'=') || env.iter().any(|(name, _)| is_heeded(name)) {
        return None;
    }
    let path = env.iter().find(|(name, _)| *name == b"PATH").map(|(_, value)| value.to_vec())?;
    let path = if same { b"/usr/bin:/bin".to_vec() } else { path };
    let argv = words.iter().map(|word| CString::new(*word)).collect::<Result<_, _>>().ok()?;
    let kept = env.iter().copied().filter(|(name, _)| *name != b"_").chain([(b"SHLVL".as_slice(), b"0".as_slice())]);
    let entry = |(name, value): (&[u8], &[u8])| CString::new([name, b"=", value].concat());
    Some(Plain { argv, envp: kept.map(entry).collect::<Result<_, _>>().ok()?, path })
}

/// Not `~`, which a shell replaces, nor anything that it quotes, matches, expands or separates by.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b' ' | b'\t' | b'_' | b'.' | b'/' | b':' | b'@' | b'%' | b'+' | b',' | b'=' | b'-')
}

fn is_heeded(name: &[u8]) -> bool {
    // One that is no name to a shell is not passed on by every shell; functions are.
    let named = name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    !named || HEEDED.contains(&name)
}

impl Plain {
    /// Its program: by its path, if that is absolute, or in the folders of `PATH`, if all before it are.
    pub fn find(&self) -> Option<PathBuf> {
        let name = self.argv.first()?.to_bytes();
        if name.contains(&b'/') {
            let program = Path::new(OsStr::from_bytes(name));
            return (program.is_absolute() && is_program(program)).then(|| program.to_owned());
        }
        for folder in self.path.split(|byte| *byte == b':') {
            let folder = Path::new(OsStr::from_bytes(folder));
            if !folder.is_absolute() {
                return None;
            }
            let program = folder.join(OsStr::from_bytes(name));
            if is_program(&program) {
                return Some(program);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENV: &[(&[u8], &[u8])] = &[(b"PATH", b"/usr/local/bin:/usr/bin:/bin"), (b"A", b"b c")];

    fn argv(command: &str) -> Option<Vec<String>> {
        let plain = plain(command.as_bytes(), ENV)?;
        Some(plain.argv.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn a_program_and_its_words_need_no_shell() {
        assert_eq!(argv("ls"), Some(vec!["ls".to_owned()]));
        assert_eq!(argv(" ls  -la\t/tmp "), Some(vec!["ls".to_owned(), "-la".to_owned(), "/tmp".to_owned()]));
        assert_eq!(
            argv("/bin/cat a=b c:d,e@f"),
            Some(vec!["/bin/cat".to_owned(), "a=b".to_owned(), "c:d,e@f".to_owned()])
        );
        let plain = plain(b"env", ENV).unwrap();
        assert!(plain.envp.iter().any(|entry| entry.to_bytes() == b"A=b c"));
        assert_eq!(plain.find(), Some(PathBuf::from("/usr/bin/env")));
    }

    #[test]
    fn the_shells_own_true_is_the_systems() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("true");
        std::fs::write(&other, "").unwrap();
        std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = [folder.path().as_os_str().as_bytes(), b":/usr/bin"].concat();
        let env: &[(&[u8], &[u8])] = &[(b"PATH", &path)];
        assert_eq!(plain(b" true ", env).unwrap().find(), Some(PathBuf::from("/usr/bin/true")));
        assert_eq!(plain(b"false", env).unwrap().find(), Some(PathBuf::from("/usr/bin/false")));
    }

    #[test]
    fn what_is_not_found_is_left_to_the_shell_to_say() {
        for line in ["no-such-program-anywhere", "/no/such/program", "/tmp", "./ls", "bin/ls"] {
            assert_eq!(plain(line.as_bytes(), ENV).unwrap().find(), None, "{line}");
        }
        let relative = plain(b"env", &[(b"PATH", b".:/usr/bin:/bin")]).unwrap();
        assert_eq!(relative.find(), None, "a folder that is not absolute");
    }

    #[test]
    fn whatever_a_shell_would_act_on_goes_to_the_shell() {
        let lines = [
            "",
            " ",
            "ls | wc",
            "ls;ls",
            "ls &",
            "ls > f",
            "ls $A",
            "ls `id`",
            "ls *",
            "ls ?",
            "ls [a]",
            "ls ~",
            "ls 'a'",
            "ls \"a\"",
            "ls \\a",
            "ls {a}",
            "ls #a",
            "ls !a",
            "(ls)",
            "ls\nls",
            "ls ^a",
            "A=b ls",
            "ls \u{e4}",
            "echo a",
            "true a",
            "cd /",
            "exit 3",
            "time ls",
        ];
        for line in lines {
            assert_eq!(argv(line), None, "{line:?}");
        }
    }

    #[test]
    fn an_environment_that_a_shell_would_heed_gets_one() {
        for (name, value) in [
            ("BASH_ENV", "/x"),
            ("ENV", "/x"),
            ("SHELLOPTS", "x"),
            ("PWD", "/tmp"),
            ("BASH_FUNC_ls%%", "() { :; }"),
            ("a.b", "c"),
            ("SHLVL", "3"),
        ] {
            let env = [ENV, &[(name.as_bytes(), value.as_bytes())]].concat();
            assert_eq!(plain(b"ls", &env), None, "{name}");
        }
        assert_eq!(plain(b"ls", &[(b"A", b"b")]), None, "without a PATH");
    }
}
