//! The agents folder: listing it, and turning the files into definitions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hearth_types::AgentDefinition;

use crate::file_error::Faults;
use crate::{FileError, RESERVED_NAMES, Skill, agent_file, skill_file};

/// Bytes of one agent or skill file.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Entries of the folder, sub-folders included: a wrong folder is noticed, not read to the end.
const MAX_ENTRIES: usize = 10_000;
/// Levels of sub-folders: a link that leads to its own parent ends here.
const MAX_DEPTH: usize = 8;

/// One file of the folder, before it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Below the agents folder, with `/` between its parts.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// What the folder defines, in the order of the names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Library {
    pub agents: Vec<AgentDefinition>,
    pub skills: Vec<Skill>,
}

/// Reads and parses the agents folder. All faults are collected, up to a bound.
pub fn load(folder: &Path) -> Result<Library, Vec<FileError>> {
    let mut faults = Faults::default();
    let files = Listing::of(folder, &mut faults);
    let library = parse_into(&files, &mut faults);
    faults.finish(&folder.display().to_string(), library)
}

/// Parses files that were read already.
pub fn parse(files: &[SourceFile]) -> Result<Library, Vec<FileError>> {
    let mut faults = Faults::default();
    let library = parse_into(files, &mut faults);
    faults.finish("agents", library)
}

fn parse_into(files: &[SourceFile], faults: &mut Faults) -> Library {
    let mut agents: BTreeMap<String, (AgentDefinition, &str)> = BTreeMap::new();
    let mut skills = Vec::new();
    for file in files {
        let path = file.path.as_str();
        if let Some(below) = path.strip_prefix("skills/") {
            match skill_name(below) {
                Some(name) => match skill_file::parse(path, name, &file.bytes) {
                    Ok(skill) => skills.push(skill),
                    Err(fault) => faults.add(fault),
                },
                None if below.contains('/') => {}
                None => faults.add(FileError::at(path, 1, "a skill stands in skills/NAME/SKILL.md")),
            }
            continue;
        }
        let Some((kind, name)) = agent_file::kind_and_name(path) else { continue };
        if RESERVED_NAMES.contains(&name) {
            faults.add(FileError::at(path, 1, format!("{name:?} is a built-in agent and cannot be defined by a file")));
            continue;
        }
        match agent_file::parse(path, kind, name, &file.bytes) {
            Err(found) => found.into_iter().for_each(|fault| faults.add(fault)),
            Ok(agent) => match agents.get(name) {
                Some((_, other)) => {
                    faults.add(FileError::at(path, 1, format!("{name:?} is defined by {other} already")));
                }
                None => {
                    agents.insert(name.to_owned(), (agent, path));
                }
            },
        }
    }
    skills.sort_by(|a, b| a.name.cmp(&b.name));
    Library { agents: agents.into_values().map(|(agent, _)| agent).collect(), skills }
}

/// `NAME` of `NAME/SKILL.md`; other files of a skill's folder are its own business.
fn skill_name(below: &str) -> Option<&str> {
    below.split_once('/').filter(|(_, file)| *file == "SKILL.md").map(|(name, _)| name)
}

/// Walks the folder. Hidden files and files that define nothing are left alone.
struct Listing<'a> {
    root: PathBuf,
    files: Vec<SourceFile>,
    entries: usize,
    faults: &'a mut Faults,
}

impl<'a> Listing<'a> {
    fn of(folder: &Path, faults: &'a mut Faults) -> Vec<SourceFile> {
        let shown = folder.display().to_string();
        match fs::canonicalize(folder) {
            Err(error) => {
                faults.add(FileError::whole(&shown, format!("the agents folder cannot be read: {error}")));
                Vec::new()
            }
            Ok(root) if !root.is_dir() => {
                faults.add(FileError::whole(&shown, "the agents folder is not a folder"));
                Vec::new()
            }
            Ok(root) => {
                let mut listing = Self { root: root.clone(), files: Vec::new(), entries: 0, faults };
                listing.walk(&root, "", 0);
                listing.files
            }
        }
    }

    fn walk(&mut self, folder: &Path, prefix: &str, depth: usize) {
        let shown = if prefix.is_empty() { "." } else { prefix.trim_end_matches('/') };
        if depth > MAX_DEPTH {
            return self.faults.add(FileError::whole(shown, format!("more than {MAX_DEPTH} levels of folders")));
        }
        let mut entries = match fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => return self.faults.add(FileError::whole(shown, format!("cannot be listed: {error}"))),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                if self.entries == MAX_ENTRIES + 1 {
                    self.faults.add(FileError::whole(shown, format!("more than {MAX_ENTRIES} files and folders")));
                }
                return;
            }
            self.visit(&entry, prefix, depth);
        }
    }

    fn visit(&mut self, entry: &fs::DirEntry, prefix: &str, depth: usize) {
        let name = entry.file_name();
        let path = format!("{prefix}{}", name.to_string_lossy());
        if name.to_string_lossy().starts_with('.') {
            return;
        }
        // Follows links: what counts is where the file really is.
        let real = match fs::canonicalize(entry.path()) {
            Ok(real) => real,
            Err(error) => return self.faults.add(FileError::whole(&path, format!("cannot be reached: {error}"))),
        };
        if !real.starts_with(&self.root) {
            return self.faults.add(FileError::whole(&path, "is a link that leads out of the agents folder"));
        }
        if real.is_dir() {
            self.walk(&real, &format!("{path}/"), depth + 1);
        } else if defines_something(&path) {
            match read_bounded(&real) {
                Ok(bytes) => self.files.push(SourceFile { path, bytes }),
                Err(reason) => self.faults.add(FileError::at(&path, 1, reason)),
            }
        }
    }
}

fn defines_something(path: &str) -> bool {
    match path.strip_prefix("skills/") {
        Some(below) => skill_name(below).is_some() || !below.contains('/'),
        None => agent_file::kind_and_name(path).is_some(),
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!("has {} bytes; at most {MAX_FILE_BYTES} are allowed", metadata.len()));
    }
    fs::read(path).map_err(|error| format!("cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn faults(dir: &tempfile::TempDir) -> Vec<String> {
        load(dir.path()).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sub_folder_is_part_of_the_name() {
        let dir = folder(&[
            ("one.md", "---\n---\nOne"),
            ("chat/medium.md", "---\nmodel: m\n---\n"),
            ("chat/sum.js", "function run(input) { return 1 }"),
            ("skills/rust/SKILL.md", "---\ndescription: Builds\n---\nUse cargo."),
            ("skills/rust/notes/extra.md", "not read"),
            ("notes.txt", "not read"),
            (".hidden.md", "not read"),
        ]);
        let library = load(dir.path()).unwrap();
        let names: Vec<_> = library.agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["chat/medium", "chat/sum", "one"]);
        assert_eq!(library.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["rust"]);
    }

    #[test]
    fn every_bad_file_is_named_not_only_the_first() {
        let dir = folder(&[
            ("a.md", "---\ncolour: red\n---\n"),
            ("b.md", "---\nmodel: x\n"),
            ("mock.md", "---\n---\n"),
            ("dev/exec.js", "function run() {}"),
            ("twice.js", "function run() {}"),
            ("twice.md", "---\n---\n"),
            ("skills/loose.md", "---\n---\n"),
        ]);
        fs::write(dir.path().join("latin.md"), b"---\nmodel: \xe4\n---\n").unwrap();
        fs::write(dir.path().join("big.md"), vec![b'x'; MAX_FILE_BYTES as usize + 1]).unwrap();
        let faults = faults(&dir);
        for start in [
            "a.md:2: ",
            "b.md:1: ",
            "big.md:1: ",
            "dev/exec.js:1: ",
            "latin.md:2: ",
            "mock.md:1: ",
            "skills/loose.md:1: ",
            "twice.md:1: ",
        ] {
            assert!(faults.iter().any(|fault| fault.starts_with(start)), "{start} in {faults:#?}");
        }
        assert_eq!(faults.len(), 8, "{faults:#?}");
    }

    #[test]
    fn a_link_out_of_the_folder_is_refused_and_one_inside_is_followed() {
        let outside = folder(&[("secret.md", "---\n---\nx"), ("deep/x.md", "---\n---\nx")]);
        let dir = folder(&[("one.md", "---\n---\nOne")]);
        symlink(dir.path().join("one.md"), dir.path().join("two.md")).unwrap();
        assert_eq!(load(dir.path()).unwrap().agents.len(), 2);
        symlink(outside.path().join("secret.md"), dir.path().join("leak.md")).unwrap();
        symlink(outside.path().join("deep"), dir.path().join("deep")).unwrap();
        symlink(dir.path().join("gone.md"), dir.path().join("broken.md")).unwrap();
        let faults = faults(&dir);
        assert_eq!(faults.len(), 3, "{faults:#?}");
        assert!(faults.iter().filter(|fault| fault.contains("out of the agents folder")).count() == 2, "{faults:#?}");
    }

    #[test]
    fn a_link_to_its_own_parent_ends() {
        let dir = folder(&[("one.md", "---\n---\nOne")]);
        symlink(dir.path(), dir.path().join("loop")).unwrap();
        assert!(faults(&dir).iter().any(|fault| fault.contains("levels of folders")));
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_fault() {
        assert_eq!(load(Path::new("/nowhere/agents")).unwrap_err().first().unwrap().line, None);
    }

    #[test]
    fn faults_past_the_bound_are_counted() {
        let files: Vec<SourceFile> =
            (0..150).map(|n| SourceFile { path: format!("a{n}.md"), bytes: Vec::new() }).collect();
        let faults = parse(&files).unwrap_err();
        assert_eq!(faults.len(), 101);
        assert!(faults.last().unwrap().reason.contains("50 more"));
    }
}
