//! Where values come from, and which of them counts.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::ConfigError;
use super::table::{SETTINGS, find};

/// Variables with the prefix `HEARTH_` that are not settings of a replica: they belong to the
/// operator's client and to the command line.
const FOREIGN_VARIABLES: &[&str] = &[
    "HEARTH_URL",
    "HEARTH_CONFIG",
    // What a test asks a debug build for; any other build refuses it.
    #[cfg(debug_assertions)]
    "HEARTH_CRASH_AT_APPEND",
    #[cfg(debug_assertions)]
    "HEARTH_NEXT_VERSION",
];

/// Everything that settings are read from. It has no debug output: there are secrets in it.
#[derive(Clone, Default)]
pub struct Sources {
    /// Name and text of the file.
    pub file: Option<(String, String)>,
    pub environment: BTreeMap<String, String>,
    /// Setting and value, as flags give them.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// Reads the file; the environment is that of the process, as the caller hands it over.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Vec<(&'static str, String)>,
    ) -> Result<Self, ConfigError> {
        let file = file.map(|path| match std::fs::read_to_string(path) {
            Ok(text) => Ok((path.display().to_string(), text)),
            Err(error) => Err(ConfigError::one(format!("{} cannot be read: {error}", path.display()))),
        });
        Ok(Self { file: file.transpose()?, environment: environment.into_iter().collect(), flags })
    }
}

/// A value as text, and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub text: String,
    pub origin: String,
}

/// The value that counts for each setting, and what nodes and sandboxes are told.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub values: BTreeMap<&'static str, Raw>,
    pub sandbox: BTreeMap<String, String>,
    pub otlp_fallback: Option<Raw>,
    pub problems: Vec<String>,
}

impl Merged {
    pub(super) fn of(sources: &Sources) -> Self {
        let mut merged = Self::default();
        if let Some((name, text)) = &sources.file {
            merged.add_file(name, text);
        }
        merged.add_environment(&sources.environment);
        for (key, text) in &sources.flags {
            match find(key) {
                Some(setting) => {
                    let origin = format!("--{}", key.replace('_', "-"));
                    merged.values.insert(setting.key, Raw { text: text.clone(), origin });
                }
                None => merged.problems.push(format!("`{key}` is not a setting; there are: {}", names())),
            }
        }
        merged
    }

    fn add_file(&mut self, name: &str, text: &str) {
        let table: toml::Table = match toml::from_str(text) {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                self.problems.push(format!("{name}, line {line}: {}", error.message()));
                return;
            }
        };
        for (key, value) in table {
            let origin = name.to_owned();
            match (find(&key), key.as_str(), value) {
                (_, "sandbox", toml::Value::Table(table)) => self.add_sandbox_table(name, table),
                (Some(setting), _, value) => match scalar(&value) {
                    Some(text) => drop(self.values.insert(setting.key, Raw { text, origin })),
                    None => self.problems.push(format!(
                        "`{key}` in {name} is a {}; allowed: {}",
                        value.type_str(),
                        setting.allowed
                    )),
                },
                (None, ..) => {
                    self.problems
                        .push(format!("`{key}` in {name} is not a setting; there are: {}, [sandbox]", names()));
                }
            }
        }
    }

    /// `[sandbox] image = "…"` is `SANDBOX_IMAGE`; which names there are is known to the sandbox.
    fn add_sandbox_table(&mut self, name: &str, table: toml::Table) {
        for (key, value) in table {
            match scalar(&value) {
                Some(text) => drop(self.sandbox.insert(format!("SANDBOX_{}", key.to_ascii_uppercase()), text)),
                None => self.problems.push(format!(
                    "`sandbox.{key}` in {name} is a {}; allowed: text, a number, true or false",
                    value.type_str()
                )),
            }
        }
    }

    fn add_environment(&mut self, environment: &BTreeMap<String, String>) {
        for (variable, text) in environment {
            if variable.starts_with("SANDBOX_") {
                self.sandbox.insert(variable.clone(), text.clone());
            } else if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" && !text.is_empty() {
                self.otlp_fallback = Some(Raw { text: text.clone(), origin: variable.clone() });
            } else if variable.starts_with("HEARTH_") && !FOREIGN_VARIABLES.contains(&variable.as_str()) {
                match SETTINGS.iter().find(|setting| setting.variable() == *variable) {
                    Some(setting) => {
                        self.values.insert(setting.key, Raw { text: text.clone(), origin: variable.clone() });
                    }
                    None => self.problems.push(format!(
                        "{variable} is not a setting; there are: {}",
                        SETTINGS.iter().map(|setting| setting.variable()).collect::<Vec<_>>().join(", ")
                    )),
                }
            }
        }
    }
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn names() -> String {
    SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ")
}
