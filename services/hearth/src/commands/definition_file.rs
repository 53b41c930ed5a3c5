//! A definition from a file: as the agents folder has it, or the JSON object of the API.

use std::path::{Path, PathBuf};

use hearth_client::Definitions;
use hearth_library::{Library, MAX_FILE_BYTES, SourceFile};
use serde_json::Value;

use crate::failure::Failure;

/// Reads the file. A name that is given counts before that of the file.
pub fn read(kind: Definitions, file: &Path, name: Option<&str>) -> Result<Value, Failure> {
    let shown = file.display().to_string();
    let usage = |reason: String| Failure::Usage(format!("{shown}: {reason}"));
    let bytes = bytes_of(file).map_err(&usage)?;
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if extension == "json" {
        let mut object: Value = serde_json::from_slice(&bytes).map_err(|error| usage(error.to_string()))?;
        if let (Some(fields), Some(name)) = (object.as_object_mut(), name) {
            fields.insert("name".to_owned(), name.into());
        }
        return Ok(object);
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => name_of(kind, file).ok_or_else(|| usage("its name is no text; say --name".to_owned()))?,
    };
    let path = match (kind, extension) {
        (Definitions::Agents, "md" | "js") => format!("{name}.{extension}"),
        (Definitions::Skills, "md") => format!("skills/{name}/SKILL.md"),
        (Definitions::Agents, _) => return Err(usage("an agent's file ends in .md, .js or .json".to_owned())),
        (Definitions::Skills, _) => return Err(usage("a skill's file ends in .md or .json".to_owned())),
    };
    let library = hearth_library::parse(&[SourceFile { path, bytes }]).map_err(|faults| {
        let faults: Vec<String> = faults
            .iter()
            .map(|fault| match fault.line {
                Some(line) => format!("{shown}:{line}: {}", fault.reason),
                None => format!("{shown}: {}", fault.reason),
            })
            .collect();
        Failure::Usage(faults.join("\n"))
    })?;
    value_of(library).ok_or_else(|| usage("it defines nothing".to_owned()))
}

fn value_of(library: Library) -> Option<Value> {
    match (library.agents.first(), library.skills.first()) {
        (Some(agent), _) => serde_json::to_value(agent).ok(),
        (None, Some(skill)) => serde_json::to_value(skill).ok(),
        (None, None) => None,
    }
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| error.to_string();
    let length = std::fs::metadata(file).map_err(told)?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("it has {length} bytes; at most {MAX_FILE_BYTES} are taken"));
    }
    std::fs::read(file).map_err(told)
}

/// `NAME.md`, or `NAME/SKILL.md`.
fn name_of(kind: Definitions, file: &Path) -> Option<String> {
    let is_skill = kind == Definitions::Skills && file.file_name().is_some_and(|name| name == "SKILL.md");
    let named: PathBuf = if is_skill { file.parent()?.to_owned() } else { file.with_extension("") };
    named.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_file_is_read_as_the_agents_folder_would() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| file(folder.path(), name, text);
        let prompt = at("reviewer.md", "---\ndescription: Reads\ntools: [Agent]\n---\nBe strict.\n");
        let agent = read(Definitions::Agents, &prompt, None).ok().unwrap();
        assert_eq!((&agent["name"], &agent["system_prompt"]), (&"reviewer".into(), &"Be strict.".into()));
        assert_eq!(read(Definitions::Agents, &prompt, Some("team/reviewer")).ok().unwrap()["name"], "team/reviewer");
        let program = at("sum.js", "/*\ndescription: Adds\n*/\nfunction run(input) { return input }\n");
        assert!(read(Definitions::Agents, &program, None).ok().unwrap()["code"].is_string());
        let skill = at("rust/SKILL.md", "---\ndescription: Builds\n---\nUse cargo.\n");
        let skill = read(Definitions::Skills, &skill, None).ok().unwrap();
        assert_eq!((&skill["name"], &skill["body"]), (&"rust".into(), &"Use cargo.".into()));
        let object = at("any.json", r#"{"description": "x"}"#);
        assert_eq!(read(Definitions::Agents, &object, Some("other")).ok().unwrap()["name"], "other");
    }

    #[test]
    fn a_wrong_file_is_usage_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, told) in [
            ("a.md", "---\nmodel: x\ncolour: red\n---\n", "a.md:3"),
            ("a.txt", "x", ".md, .js or .json"),
            ("a.json", "{", "a.json"),
            ("a b.md", "x", "not an agent's name"),
        ] {
            match read(Definitions::Agents, &file(folder.path(), name, text), None) {
                Err(Failure::Usage(reason)) => assert!(reason.contains(told), "{reason}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(matches!(read(Definitions::Agents, &folder.path().join("none.md"), None), Err(Failure::Usage(_))));
    }
}
