//! What is wrong with a file of the agents folder, and where.

use std::fmt;

/// One fault of one file. A start that meets any stops, after it has named them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The path below the agents folder, or the folder's own.
    pub file: String,
    /// Counted from 1 at the beginning of the file; absent where no line is to blame.
    pub line: Option<u32>,
    pub reason: String,
}

impl FileError {
    pub(crate) fn at(file: &str, line: u32, reason: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: Some(line), reason: reason.into() }
    }

    pub(crate) fn whole(file: &str, reason: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, reason: reason.into() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

impl std::error::Error for FileError {}

/// How many faults are named one by one.
const MAX_NAMED: usize = 100;

/// Collects faults, and only counts those past the bound.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    named: Vec<FileError>,
    unnamed: usize,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: FileError) {
        if self.named.len() < MAX_NAMED {
            self.named.push(fault);
        } else {
            self.unnamed += 1;
        }
    }

    pub(crate) fn finish<T>(mut self, folder: &str, good: T) -> Result<T, Vec<FileError>> {
        if self.named.is_empty() {
            return Ok(good);
        }
        if self.unnamed > 0 {
            self.named.push(FileError::whole(folder, format!("{} more faults are not shown", self.unnamed)));
        }
        Err(self.named)
    }
}
