//! The program that the demo has built: a small evaluator of expressions, in Rust where the sandbox has
//! cargo, else the same in C. The sources are real files under `services/hearth/demo`.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// A file of the project, by its path in the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    pub path: String,
    pub content: String,
}

impl SourceFile {
    pub fn digest(&self) -> String {
        hex::encode(Sha256::digest(self.content.as_bytes()))
    }
}

/// A change of one file: each pair is a text that is there once, and what takes its place.
#[derive(Debug, Clone, Copy)]
pub struct Edit {
    pub what: &'static str,
    pub path: &'static str,
    pub replacements: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy)]
pub struct Project {
    pub language: &'static str,
    /// Its folder in the workspace.
    pub folder: &'static str,
    pub files: &'static [(&'static str, &'static str)],
    /// What the compiler reports once per unit that it compiles.
    pub units: usize,
    pub build: &'static str,
    pub test: &'static str,
    /// A build from nothing that leaves the other build's cache alone; long enough to be interrupted.
    pub long_build: &'static str,
    pub change: Edit,
    pub fix: Edit,
    /// The tests that fail before the fix.
    pub failing: [&'static str; 2],
}

macro_rules! sources {
    ($folder:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../demo/", $folder, "/", $path)))),*]
    };
}

const FAILING: [&str; 2] = ["a_power_binds_before_the_sign", "powers_group_to_the_right"];

pub const RUST: Project = Project {
    language: "Rust",
    folder: "tally",
    files: sources!("tally": "Cargo.toml"
        "primes/Cargo.toml" "primes/src/lib.rs" "primes/tests/table.rs"
        "syntax/Cargo.toml" "syntax/src/lib.rs" "syntax/src/lexer.rs"
        "parser/Cargo.toml" "parser/src/lib.rs"
        "machine/Cargo.toml" "machine/src/lib.rs" "machine/src/functions.rs"
        "tally/Cargo.toml" "tally/src/lib.rs" "tally/src/main.rs" "tally/tests/arithmetic.rs"),
    units: 5,
    build: "cd tally && cargo build --offline",
    test: "cd tally && RUST_BACKTRACE=0 cargo test --offline --workspace --no-fail-fast",
    long_build: "cd tally && rm -rf \"${CARGO_TARGET_DIR:-target}/release\" && cargo build --offline --release",
    change: Edit {
        what: "print the expression before its value",
        path: "tally/src/main.rs",
        replacements: &[(r#"println!("{number}")"#, r#"println!("{text} = {number}")"#)],
    },
    fix: Edit {
        what: "mend the precedence of ^",
        path: "parser/src/lib.rs",
        replacements: &[("NEGATION: u8 = 5", "NEGATION: u8 = 3"), ("RIGHT: bool = false", "RIGHT: bool = true")],
    },
    failing: FAILING,
};

pub const C: Project = Project {
    language: "C",
    folder: "tally-c",
    files: sources!("tally-c": "Makefile" "tally.h" "primes.c" "lexer.c" "parser.c" "main.c" "check.c"),
    units: 4,
    build: "cd tally-c && make",
    test: "cd tally-c && make test",
    long_build: "cd tally-c && rm -rf build/release && make BUILD=build/release CFLAGS=-O3",
    change: Edit {
        what: "print the expression before its value",
        path: "main.c",
        replacements: &[(r#"printf("%g\n", value)"#, r#"printf("%s = %g\n", texts[i], value)"#)],
    },
    fix: Edit {
        what: "mend the precedence of ^",
        path: "parser.c",
        replacements: &[("NEGATION 5", "NEGATION 3"), ("RIGHT 0", "RIGHT 1")],
    },
    failing: FAILING,
};

impl Project {
    /// The files as the demo begins with them.
    pub fn sources(&self) -> Vec<SourceFile> {
        self.files
            .iter()
            .map(|(path, content)| SourceFile { path: self.place(path), content: (*content).to_owned() })
            .collect()
    }

    /// The file of an edit, edited.
    pub fn edited(&self, edit: &Edit) -> Option<SourceFile> {
        let (path, content) = self.files.iter().find(|(path, _)| *path == edit.path)?;
        let content = edit.replacements.iter().fold((*content).to_owned(), |text, (old, new)| text.replace(old, new));
        Some(SourceFile { path: self.place(path), content })
    }

    fn place(&self, path: &str) -> String {
        format!("{}/{path}", self.folder)
    }
}

/// How many units a build compiled.
pub fn compiled(output: &str) -> usize {
    output.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count()
}

/// What a test run says of each test.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tests {
    pub passed: usize,
    pub failed: Vec<String>,
}

impl Tests {
    pub fn read(output: &str) -> Self {
        let mut tests = Self::default();
        for line in output.lines() {
            let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
                continue;
            };
            match verdict.trim() {
                "ok" => tests.passed += 1,
                "FAILED" => tests.failed.push(name.rsplit("::").next().unwrap_or(name).to_owned()),
                _ => {}
            }
        }
        tests.failed.sort();
        tests
    }

    pub fn total(&self) -> usize {
        self.passed + self.failed.len()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn each_edit_finds_its_text_once() {
        for project in [RUST, C] {
            for edit in [project.change, project.fix] {
                let (_, content) = project.files.iter().find(|(path, _)| *path == edit.path).unwrap();
                for (old, _) in edit.replacements {
                    assert_eq!(content.matches(old).count(), 1, "{old} in {}", edit.path);
                }
            }
        }
    }

    #[test]
    fn the_verdicts_of_tests_are_read() {
        let output = "running 2 tests\ntest a::b ... FAILED\ntest c ... ok\ntest result: FAILED. 1 passed;";
        assert_eq!(Tests::read(output), Tests { passed: 1, failed: vec!["b".to_owned()] });
        assert_eq!(compiled("   Compiling a v1\nCompiling b\n    Finished"), 2);
    }

    /// Plays the demo's middle in a folder of its own; what it asserts is what the demo shows.
    fn play(project: &Project) {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &SourceFile| {
            let path = folder.path().join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &file.content).unwrap();
        };
        let run = |command: &str| {
            let mut shell = Command::new("bash");
            // This test runs inside a cargo that tells its children what to build, and how.
            for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_") || name.starts_with("RUST"))
            {
                if !matches!(name.as_str(), "CARGO_HOME" | "RUSTUP_HOME" | "RUSTUP_TOOLCHAIN") {
                    shell.env_remove(name);
                }
            }
            let output = shell.args(["-c", &format!("{{ {command}; }} 2>&1")]).current_dir(&folder).output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        project.sources().iter().for_each(write);
        let (ok, output) = run(project.build);
        assert!(ok && compiled(&output) == project.units, "{output}");
        write(&project.edited(&project.change).unwrap());
        let (ok, output) = run(project.build);
        assert!(ok && compiled(&output) == 1, "{output}");
        let (ok, output) = run(project.test);
        assert!(!ok, "{output}");
        let before = Tests::read(&output);
        assert_eq!(before.failed, project.failing, "{output}");
        write(&project.edited(&project.fix).unwrap());
        let (ok, output) = run(project.test);
        assert!(ok, "{output}");
        assert_eq!(Tests::read(&output), Tests { passed: before.total(), failed: vec![] });
        let (ok, output) = run(project.long_build);
        assert!(ok && compiled(&output) == project.units, "{output}");
    }

    #[test]
    fn the_rust_project_plays_as_the_demo_tells_it() {
        play(&RUST);
    }

    #[test]
    fn the_c_project_plays_as_the_demo_tells_it() {
        play(&C);
    }
}
