//! Prompts that are JSON objects with fields, and errors that name the field.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, ErrorKind};

/// A field and what it may hold, in words.
pub(crate) type Allowed = (&'static str, &'static str);

/// What the prompts of one built-in agent look like.
pub(crate) struct Form {
    /// The object's own path in messages: empty, or a name with a dot.
    pub prefix: &'static str,
    pub fields: &'static [Allowed],
    pub example: &'static str,
}

impl Form {
    pub fn read<T: DeserializeOwned>(&self, object: Value) -> Result<T, Error> {
        serde_path_to_error::deserialize(object).map_err(|error| {
            let path = error.path().to_string();
            let top = path.split(['.', '[']).next().unwrap_or_default();
            match self.fields.iter().find(|(name, _)| *name == top) {
                Some((_, allowed)) => self.refuse(&path, &error.inner().to_string(), allowed),
                None => {
                    let names: Vec<&str> = self.fields.iter().map(|(name, _)| *name).collect();
                    let why = error.inner().to_string();
                    // serde lists the fields itself, in the form of its own.
                    let why = why.split(", expected").next().unwrap_or_default();
                    self.refuse(&path, why, &format!("the fields {}", names.join(", ")))
                }
            }
        })
    }

    /// The error for a field whose value is out of range.
    pub fn out_of_range(&self, field: &str, value: impl std::fmt::Display) -> Error {
        let allowed = self.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, allowed)| allowed);
        self.refuse(field, &format!("it is {value}"), allowed)
    }

    /// The error for a field that holds what it may not.
    pub fn refuse(&self, field: &str, why: &str, allowed: &str) -> Error {
        let field = match (self.prefix, field) {
            ("", "" | ".") => "the prompt".to_owned(),
            (prefix, "" | ".") => format!("`{}`", prefix.trim_end_matches('.')),
            (prefix, field) => format!("`{prefix}{field}`"),
        };
        let example = self.example;
        Error::new(ErrorKind::Invalid, format!("{field}: {why}; allowed: {allowed}. Example: {example}"))
    }
}
