//! One skill: `skills/NAME/SKILL.md`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{FileError, check_skill_name, front_matter};

/// Instructions that an agent can be given by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub body: String,
}

/// What the front matter of a skill may hold. The last three inform readers and change nothing here;
/// the ecosystem's `allowed-tools` is refused, because it would be ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillFields {
    name: Option<String>,
    description: Option<String>,
    #[serde(rename = "license")]
    _license: Option<String>,
    #[serde(rename = "compatibility")]
    _compatibility: Option<Value>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
}

pub(crate) fn parse(file: &str, name: &str, bytes: &[u8]) -> Result<Skill, FileError> {
    if let Err(fault) = check_skill_name(name) {
        return Err(FileError::at(file, 1, format!("the folder's name is not a skill's name: {}", fault.allowed)));
    }
    let parts = front_matter::of_markdown(file, front_matter::decode(file, bytes)?)?;
    let fields: SkillFields = front_matter::fields(file, &parts.yaml)?;
    if let Some(given) = fields.name.filter(|given| given != name) {
        let line = front_matter::line_of(&parts.yaml, "name", "");
        return Err(FileError::at(file, line, format!("`name` is {given:?}, but the folder's name says {name:?}")));
    }
    let Some(description) = fields.description.filter(|text| !text.trim().is_empty()) else {
        let line = front_matter::line_of(&parts.yaml, "description", "");
        return Err(FileError::at(file, line, "a skill needs a `description` that says when to use it"));
    };
    Ok(Skill { name: name.to_owned(), description, body: parts.body.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_has_a_name_a_description_and_a_body() {
        let text = "---\nname: rust\ndescription: Builds Rust\nlicense: MIT\n---\n# Rust\nUse cargo.\n";
        let skill = parse("skills/rust/SKILL.md", "rust", text.as_bytes()).unwrap();
        assert_eq!((skill.name.as_str(), skill.description.as_str()), ("rust", "Builds Rust"));
        assert_eq!(skill.body, "# Rust\nUse cargo.");
    }

    #[test]
    fn a_skill_without_a_description_or_with_an_option_that_would_be_ignored_is_refused() {
        for (text, line) in [
            ("---\nname: rust\n---\n", 2),
            ("---\nname: go\ndescription: x\n---\n", 2),
            ("---\ndescription: x\nallowed-tools: Bash\n---\n", 3),
            ("---\ndescription: x\n", 1),
        ] {
            assert_eq!(parse("f", "rust", text.as_bytes()).unwrap_err().line, Some(line), "{text:?}");
        }
    }
}
