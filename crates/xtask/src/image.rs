//! `cargo xtask image`: the session image from Debian packages, without a registry.
//!
//! What goes in is said once, in deploy/image: `packages.txt`, `setup.sh`, and the Dockerfile, whose
//! FROM, ENV, USER, WORKDIR and CMD lines are read here.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const USAGE: &str = "cargo xtask image [--force] [--tag NAME] [--mirror URL]
  builds the session image (default hearth-session:latest) with mmdebstrap and `docker import`
  --force       also when an image of the same recipe is there
  --tag NAME    the name it gets
  --mirror URL  a Debian mirror; absent: mmdebstrap's own";

const DEFAULT_TAG: &str = "hearth-session:latest";
/// The image's label that tells which recipe made it.
const RECIPE_LABEL: &str = "hearth.recipe";
/// Left out of the image: nobody reads them there.
const EXCLUDED: [&str; 3] = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"];

#[derive(Debug)]
pub enum Error {
    Usage(String),
    /// Something that has to be installed or started first; the text says how.
    Missing(String),
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A program that could not be started, or that failed.
    Step {
        program: String,
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(reason) => write!(f, "{reason}\n{USAGE}"),
            Self::Missing(reason) => f.write_str(reason),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Step { program, reason } => write!(f, "{program}: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    force: bool,
    tag: String,
    mirror: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, Error> {
        let mut options = Self { force: false, tag: DEFAULT_TAG.to_owned(), mirror: None };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().cloned().ok_or_else(|| Error::Usage(format!("{arg} needs a value")));
            match arg.as_str() {
                "--force" => options.force = true,
                "--tag" => options.tag = value()?,
                "--mirror" => options.mirror = Some(value()?),
                other => return Err(Error::Usage(format!("unknown argument {other:?}"))),
            }
        }
        Ok(options)
    }
}

/// Everything that decides what the image holds.
#[derive(Debug)]
struct Recipe {
    suite: String,
    packages: Vec<String>,
    setup: PathBuf,
    /// Lines for `docker import --change`.
    changes: Vec<String>,
    digest: String,
}

impl Recipe {
    fn read(folder: &Path) -> Result<Self, Error> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|source| Error::File { path, source })
        };
        let (dockerfile, packages, setup) = (text("Dockerfile")?, text("packages.txt")?, text("setup.sh")?);
        let digest = fnv1a(&[&dockerfile, &packages, &setup, &EXCLUDED.join(" ")]);
        Ok(Self {
            suite: suite(&dockerfile)
                .ok_or_else(|| Error::Usage("deploy/image/Dockerfile names no `FROM debian:SUITE…`".to_owned()))?,
            packages: packages.split_whitespace().map(str::to_owned).collect(),
            setup: folder.join("setup.sh"),
            changes: changes(&dockerfile),
            digest,
        })
    }
}

/// The Debian suite of `FROM debian:trixie-slim`.
fn suite(dockerfile: &str) -> Option<String> {
    let base = dockerfile.lines().find_map(|line| line.strip_prefix("FROM debian:"))?;
    let suite = base.trim().trim_end_matches("-slim");
    (!suite.is_empty()).then(|| suite.to_owned())
}

/// The Dockerfile's lines that set metadata and copy or run nothing.
fn changes(dockerfile: &str) -> Vec<String> {
    let kept = ["ENV ", "USER ", "WORKDIR ", "CMD "];
    dockerfile.lines().filter(|line| kept.iter().any(|word| line.starts_with(word))).map(str::to_owned).collect()
}

/// FNV-1a, 64 bits: it notices a change, and needs no crate; nobody has to be kept from forging it.
fn fnv1a(parts: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Builds the image unless one of the same recipe is there. `root` is the repository's folder.
pub fn run(root: &Path, args: &[String]) -> Result<(), Error> {
    let options = Options::parse(args)?;
    let recipe = Recipe::read(&root.join("deploy/image"))?;
    check_docker()?;
    if !options.force && built_recipe(&options.tag).as_deref() == Some(recipe.digest.as_str()) {
        println!("image: {} is there, of this recipe ({}); --force builds it anew", options.tag, recipe.digest);
        return Ok(());
    }
    require_mmdebstrap()?;
    let folder = root.join("target/image");
    fs::create_dir_all(&folder).map_err(|source| Error::File { path: folder.clone(), source })?;
    let archive = Removed(folder.join(format!("rootfs-{}.tar", std::process::id())));
    println!("image: 1/2 installing {} packages of Debian {} …", recipe.packages.len(), recipe.suite);
    step(&mut debootstrap(&recipe, options.mirror.as_deref(), &archive.0))?;
    println!("image: 2/2 importing as {} …", options.tag);
    step(&mut import(&recipe, &options.tag, &archive.0))?;
    let size = inspect(&options.tag, "{{.Size}}").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    println!("image: {} is ready, {} MB", options.tag, size / 1_000_000);
    Ok(())
}

/// A file that is gone when this is dropped, on every way out.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

fn check_docker() -> Result<(), Error> {
    let answer = Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]).output();
    match answer {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            Err(Error::Missing(format!("no Docker daemon answers; start dockerd, then repeat ({})", reason.trim())))
        }
        Err(_) => {
            Err(Error::Missing("`docker` is not here; install it (Debian: apt-get install docker.io)".to_owned()))
        }
    }
}

fn inspect(tag: &str, format: &str) -> Option<String> {
    let output = Command::new("docker").args(["image", "inspect", "--format", format, tag]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn built_recipe(tag: &str) -> Option<String> {
    inspect(tag, &format!("{{{{index .Config.Labels {RECIPE_LABEL:?}}}}}"))
}

/// Installs mmdebstrap where this process may, else says what to install.
fn require_mmdebstrap() -> Result<(), Error> {
    let there = |program: &str| {
        let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    if there("mmdebstrap") {
        return Ok(());
    }
    let advice = "mmdebstrap is needed: apt-get install mmdebstrap; or build with `docker build deploy/image`";
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !root || !there("apt-get") {
        return Err(Error::Missing(advice.to_owned()));
    }
    println!("image: installing mmdebstrap …");
    step(Command::new("apt-get").args(["install", "-y", "--no-install-recommends", "mmdebstrap"]))
}

fn debootstrap(recipe: &Recipe, mirror: Option<&str>, archive: &Path) -> Command {
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--aptopt=APT::Install-Recommends \"false\""]);
    command.args(EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}")));
    command.arg(format!("--include={}", recipe.packages.join(",")));
    // `$1` is the new root; the script comes from outside of it on standard input. The path is quoted
    // for the shell that mmdebstrap runs hooks with.
    let quoted = recipe.setup.display().to_string().replace('\'', r"'\''");
    command.arg(format!("--customize-hook=chroot \"$1\" sh -s < '{quoted}'"));
    command.arg(&recipe.suite).arg(archive);
    command.args(mirror);
    command
}

fn import(recipe: &Recipe, tag: &str, archive: &Path) -> Command {
    let mut command = Command::new("docker");
    command.arg("import");
    for change in &recipe.changes {
        command.args(["--change", change]);
    }
    command.arg("--change").arg(format!("LABEL {RECIPE_LABEL}={}", recipe.digest));
    command.args(["--message", "built by cargo xtask image"]).arg(archive).arg(tag);
    command
}

fn step(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    std::io::stdout().flush().ok();
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Step { program, reason: format!("ended with {status}; its output above says why") }),
        Err(error) => Err(Error::Step { program, reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/image")
    }

    #[test]
    fn the_recipe_is_read_from_the_dockerfile() {
        let recipe = Recipe::read(&folder()).unwrap();
        assert_eq!(recipe.suite, "trixie");
        assert!(recipe.packages.iter().any(|name| name == "python3-venv"));
        assert!(recipe.changes.iter().any(|line| line == "USER 1000:1000"), "{:?}", recipe.changes);
        assert!(recipe.changes.iter().all(|line| !line.starts_with("RUN") && !line.starts_with("COPY")));
    }

    #[test]
    fn any_change_of_a_part_changes_the_digest() {
        assert_ne!(fnv1a(&["ab", "c"]), fnv1a(&["a", "bc"]));
        assert_eq!(fnv1a(&["ab", "c"]), fnv1a(&["ab", "c"]));
    }

    #[test]
    fn an_unknown_argument_is_refused_by_name() {
        let refused = Options::parse(&["--fast".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("--fast"), "{refused}");
        assert!(Options::parse(&["--tag".to_owned()]).is_err());
    }
}
