use hearth_models::{BuiltInModels, BuiltInOptions, ErrorKind, Models, built_in_definitions, check_code};

use crate::stage::{coded, models, named};

#[test]
fn the_built_in_definitions_are_served_and_say_what_they_may_use() {
    let definitions = built_in_definitions();
    let tools: Vec<(&str, &str)> =
        definitions.iter().map(|agent| (agent.name.as_str(), agent.tools[0].0.as_str())).collect();
    assert_eq!(tools, [("mock", "*"), ("dev/exec", "mcp__sandbox__*")]);
    for agent in &definitions {
        assert!(models().resolve(agent).is_ok_and(|model| !model.needs_history()), "{}", agent.name);
        assert!(agent.description.len() > 100);
    }
}

#[test]
fn a_provider_that_is_not_configured_is_named() {
    let mut agent = named("writer");
    (agent.provider, agent.model) = (Some("acme".to_owned()), Some("large".to_owned()));
    let error = models().resolve(&agent).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("`acme` is not configured"), "{error}");
    agent.provider = None;
    let error = models().resolve(&agent).err().unwrap();
    assert!(error.message.contains("`large`") && error.message.contains("`provider`"), "{error}");
    let error = models().resolve(&named("writer")).err().unwrap();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("`code`"), "{error}");
}

#[test]
fn code_counts_whatever_the_agent_is_called() {
    let mut agent = coded("function run() {}");
    agent.name = "mock".to_owned();
    let turn = models().resolve(&agent).unwrap().begin(crate::stage::context(&agent, r#"{"mock": {"no": 1}}"#));
    assert!(turn.is_ok());
}

#[test]
fn dev_exec_can_be_switched_off() {
    let off = BuiltInModels::new(BuiltInOptions { dev_exec: false, ..BuiltInOptions::default() });
    let error = off.resolve(&named("dev/exec")).err().unwrap();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("HEARTH_DEV_EXEC=1"), "{error}");
    assert!(off.resolve(&named("mock")).is_ok());
}

#[test]
fn code_is_checked_without_running_it() {
    assert!(check_code("function run(input) { return input }").is_ok());
    assert!(check_code("for (;;);").is_ok());
    assert!(check_code("const run = async () => { await 1 }; tool('x', {})").is_ok());
    let error = check_code("function run(input) {\n  return input +;\n}").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("SyntaxError") && error.message.contains("agent.js:2"), "{error}");
}
