//! One agent file: Markdown with a system prompt, or a program.

use hearth_types::AgentDefinition;

use crate::front_matter::{self, Parts};
use crate::{DefinitionFields, FileError, check, check_agent_name};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `NAME.md`: the body is the system prompt.
    Prompt,
    /// `NAME.js`: the whole file is the code.
    Program,
}

/// The kind and the agent's name that a path gives; `None` for a file that is no agent's.
pub(crate) fn kind_and_name(path: &str) -> Option<(Kind, &str)> {
    let by = |suffix, kind| path.strip_suffix(suffix).map(|name| (kind, name));
    by(".md", Kind::Prompt).or_else(|| by(".js", Kind::Program))
}

/// Parses one file; all faults that can be told at once.
pub(crate) fn parse(file: &str, kind: Kind, name: &str, bytes: &[u8]) -> Result<AgentDefinition, Vec<FileError>> {
    if let Err(fault) = check_agent_name(name) {
        return Err(vec![FileError::at(file, 1, format!("the file's name is not an agent's name: {}", fault.allowed))]);
    }
    let text = front_matter::decode(file, bytes).map_err(one)?;
    let parts = match kind {
        Kind::Prompt => front_matter::of_markdown(file, text),
        Kind::Program => front_matter::of_program(file, text),
    }
    .map_err(one)?;
    let fields: DefinitionFields = front_matter::fields(file, &parts.yaml).map_err(one)?;
    let definition = assemble(file, kind, name, &parts, fields).map_err(one)?;
    check(&definition).map_err(|faults| {
        let place = |fault: &crate::FieldFault| front_matter::line_of(&parts.yaml, fault.field, &fault.value);
        faults.iter().map(|fault| FileError::at(file, place(fault), fault.to_string())).collect::<Vec<_>>()
    })?;
    Ok(definition)
}

fn one(fault: FileError) -> Vec<FileError> {
    vec![fault]
}

fn assemble(
    file: &str,
    kind: Kind,
    name: &str,
    parts: &Parts<'_>,
    fields: DefinitionFields,
) -> Result<AgentDefinition, FileError> {
    let at = |field: &str, reason: String| FileError::at(file, front_matter::line_of(&parts.yaml, field, ""), reason);
    if let Some(given) = fields.name.as_ref().filter(|given| *given != name) {
        return Err(at("name", format!("`name` is {given:?}, but the file's name says {name:?}")));
    }
    let mut definition = fields.over(&AgentDefinition { name: name.to_owned(), ..AgentDefinition::default() });
    match kind {
        Kind::Prompt => {
            let body = parts.body.trim();
            if !definition.system_prompt.is_empty() && !body.is_empty() {
                return Err(at("system_prompt", "the system prompt is given twice: here and as the body".to_owned()));
            }
            if !body.is_empty() {
                body.clone_into(&mut definition.system_prompt);
            }
        }
        Kind::Program => {
            if definition.code.is_some() {
                return Err(at("code", "the code of a `.js` file is the file itself".to_owned()));
            }
            definition.code = Some(parts.body.to_owned());
        }
    }
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, text: &str) -> Result<AgentDefinition, Vec<FileError>> {
        let (kind, name) = kind_and_name(file).unwrap();
        parse(file, kind, name, text.as_bytes())
    }

    #[test]
    fn a_markdown_file_is_a_definition_with_its_body_as_system_prompt() {
        let agent = read(
            "chat/medium.md",
            "---\ndescription: Talks\nprovider: acme\nmodel: m1\ntools: [Agent, mcp__sandbox__*]\n\
             guardrails: {}\nsandbox: {isolation: L2, limits: {cpu: 0.5}}\n---\n\nBe kind.\n",
        )
        .unwrap();
        assert_eq!(agent.name, "chat/medium");
        assert_eq!(agent.system_prompt, "Be kind.");
        assert!(agent.admits("mcp__sandbox__sandbox_exec"));
        assert_eq!(agent.guardrails, Some(serde_json::json!({})));
    }

    #[test]
    fn a_program_is_a_definition_with_the_whole_file_as_code() {
        let text = "/*\ndescription: Adds\ntools: [Agent]\n*/\nfunction run(input) { return 1 }\n";
        let agent = read("sum.js", text).unwrap();
        assert_eq!(agent.code.as_deref(), Some(text));
        assert_eq!(agent.description, "Adds");
    }

    #[test]
    fn a_fault_is_told_with_file_line_and_reason() {
        for (file, text, line, reason) in [
            ("a.md", "---\ncolour: red\n---\n", 2, "unknown field `colour`"),
            ("a.md", "---\nmodel: x\nmax_iterations: many\n---\n", 3, "max_iterations"),
            ("a.md", "---\nname: b\n---\n", 2, "the file's name says \"a\""),
            ("a.md", "---\nmodel: x\ntools:\n  - Agent\n  - x*y\n---\n", 5, "`tools` is \"x*y\""),
            ("a.md", "---\nsystem_prompt: one\n---\ntwo\n", 2, "given twice"),
            ("a.md", "---\nmodel: x\nguardrails: {loop: {repeats: 3}}\n---\n", 3, "does not enforce"),
            ("a.md", "---\nmodel: x\n", 1, "not ended"),
            ("a.js", "/*\ncode: x\n*/", 2, "the file itself"),
            ("a.js", "// hi\n/* Copyright */", 0, ""),
            ("a.js", "/* Copyright me */", 1, "expected struct"),
            ("a b.md", "---\n---\n", 1, "not an agent's name"),
        ] {
            match read(file, text) {
                Ok(_) => assert_eq!(line, 0, "{file} {text:?} passed"),
                Err(faults) => {
                    let fault = faults.first().unwrap();
                    assert_eq!((fault.file.as_str(), fault.line), (file, Some(line)), "{fault}");
                    assert!(fault.reason.contains(reason), "{fault}");
                }
            }
        }
    }

    #[test]
    fn all_malformed_entries_of_a_file_are_told() {
        let faults = read("a.md", "---\ntools: [x*y]\nmax_iterations: 0\n---\n").unwrap_err();
        assert_eq!(faults.iter().filter_map(|fault| fault.line).collect::<Vec<_>>(), [2, 3]);
    }
}
