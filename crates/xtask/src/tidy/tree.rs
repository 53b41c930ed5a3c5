//! The project's own text files.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Folders that hold nothing written by hand.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "dist"];
/// Kinds of files that are read.
const KINDS: [&str; 12] = ["rs", "md", "toml", "sh", "py", "ts", "tsx", "js", "css", "html", "txt", "yml"];
/// Files without a kind that are read.
const NAMES: [&str; 3] = ["Dockerfile", "Makefile", "run"];

#[derive(Debug)]
pub struct SourceText {
    /// Below the root, with `/`.
    pub path: String,
    pub text: String,
}

impl SourceText {
    pub fn has_kind(&self, kind: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|ext| ext == kind)
    }

    /// The lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

#[derive(Debug, Default)]
pub struct Tree {
    pub files: Vec<SourceText>,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a SourceText> {
        self.files.iter().filter(move |file| file.has_kind(kind))
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<(), Failure> {
        let failed = |source| Failure::File { path: folder.to_owned(), source };
        let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.walk(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && is_read(&name) {
                let text = fs::read(entry.path()).map_err(failed)?;
                // Bytes that are not UTF-8 become a sign that no check looks for.
                self.files.push(SourceText { path, text: String::from_utf8_lossy(&text).into_owned() });
            }
        }
        Ok(())
    }
}

fn is_read(name: &str) -> bool {
    NAMES.contains(&name)
        || Path::new(name).extension().and_then(|ext| ext.to_str()).is_some_and(|ext| KINDS.contains(&ext))
}
