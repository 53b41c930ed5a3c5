//! The prompt of `dev/exec`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::prompt::Form;

/// Bounds that keep a turn within the default number of steps.
const MAX_COMMANDS: usize = 128;
const MAX_FILES: usize = 512;
const MAX_READS: usize = 128;
const MAX_TIMEOUT_SECONDS: u64 = 3_600;

const FORM: Form = Form {
    prefix: "",
    fields: &[
        ("commands", "an array of at most 128 strings"),
        ("files", "an array of at most 512 objects with `path` and `content`, both strings, each path once"),
        ("read", "an array of at most 128 paths"),
        ("workspace", "a string, the name of a durable workspace"),
        ("timeout_seconds", "a whole number, 1 to 3600, for each command"),
        ("keep_open", "true (default) or false"),
        ("session_id", "a string, the id of an open session"),
        ("close", "true or false (default)"),
        ("continue", "true or false (default)"),
    ],
    example: r#"{"files": [{"path": "hello.sh", "content": "echo hello"}], "commands": ["sh hello.sh"], "timeout_seconds": 60}"#,
};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Spec {
    pub commands: Vec<String>,
    pub files: Vec<File>,
    pub read: Vec<String>,
    pub workspace: Option<String>,
    pub timeout_seconds: Option<u64>,
    keep_open: Option<bool>,
    pub session_id: Option<String>,
    close: bool,
    #[serde(rename = "continue")]
    pub keep_going: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub path: String,
    pub content: String,
}

impl Spec {
    pub fn parse(prompt: &str) -> Result<Self, Error> {
        let object = match serde_json::from_str(prompt) {
            Ok(object @ Value::Object(_)) => object,
            Ok(_) => return Err(FORM.refuse("", "it is JSON, but not an object", "one JSON object")),
            Err(error) => return Err(FORM.refuse("", &format!("it is not JSON ({error})"), "one JSON object")),
        };
        let spec: Self = FORM.read(object)?;
        for (field, count, most) in [
            ("commands", spec.commands.len(), MAX_COMMANDS),
            ("files", spec.files.len(), MAX_FILES),
            ("read", spec.read.len(), MAX_READS),
        ] {
            if count > most {
                return Err(FORM.out_of_range(field, format_args!("{count} long")));
            }
        }
        if let Some(seconds) = spec.timeout_seconds.filter(|seconds| !(1..=MAX_TIMEOUT_SECONDS).contains(seconds)) {
            return Err(FORM.out_of_range("timeout_seconds", seconds));
        }
        // Files are written several at a time: two contents for one path would race.
        let mut paths = BTreeSet::new();
        if let Some(twice) = spec.files.iter().find(|file| !paths.insert(file.path.as_str())) {
            return Err(FORM.out_of_range("files", format_args!("with `{}` twice", twice.path)));
        }
        Ok(spec)
    }

    /// `close` counts where the two contradict each other.
    pub fn closes(&self) -> bool {
        self.close || self.keep_open == Some(false)
    }
}
