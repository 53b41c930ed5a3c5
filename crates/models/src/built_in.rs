//! Finds what serves a definition: its code, its provider, or the built-in agent of its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_types::{AgentDefinition, ToolPattern};

use crate::code::{CodeAgents, CodeBounds, CodeWorker};
use crate::dev_exec::{self, DevExec};
use crate::mock::{self, Mock};
use crate::{Error, ErrorKind, Model, Models};

#[derive(Debug, Clone)]
pub struct BuiltInOptions {
    /// Whether `dev/exec` is served. It hands a shell to whoever may prompt it.
    pub dev_exec: bool,
    pub code: CodeBounds,
    /// Runs programs in a process of its own. `None`: on threads of this one, which a defect of the
    /// interpreter can then take down with it.
    pub code_worker: Option<CodeWorker>,
}

impl Default for BuiltInOptions {
    fn default() -> Self {
        Self { dev_exec: true, code: CodeBounds::default(), code_worker: None }
    }
}

/// The models of this process. One per process: the bounds of code agents count over all of them.
pub struct BuiltInModels {
    code: Arc<CodeAgents>,
    mock: Arc<Mock>,
    dev_exec: Option<Arc<DevExec>>,
    providers: BTreeMap<String, Arc<dyn Model>>,
}

impl BuiltInModels {
    pub fn new(options: BuiltInOptions) -> Self {
        Self {
            code: Arc::new(CodeAgents::new(options.code, options.code_worker)),
            mock: Arc::new(Mock),
            dev_exec: options.dev_exec.then(|| Arc::new(DevExec)),
            providers: BTreeMap::new(),
        }
    }

    /// Serves definitions that name this provider.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<String>, provider: impl Model) -> Self {
        self.providers.insert(name.into(), Arc::new(provider));
        self
    }
}

impl Models for BuiltInModels {
    fn resolve(&self, agent: &AgentDefinition) -> Result<Arc<dyn Model>, Error> {
        let name = &agent.name;
        if agent.code.is_some() {
            return Ok(self.code.clone());
        }
        if let Some(provider) = &agent.provider {
            return self.providers.get(provider).cloned().ok_or_else(|| {
                let known: Vec<String> = self.providers.keys().map(|known| format!("`{known}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                invalid(format!(
                    "agent `{name}`: the provider `{provider}` is not configured here (configured: {known}); \
                     configure it, or name another"
                ))
            });
        }
        if let Some(model) = &agent.model {
            return Err(invalid(format!("agent `{name}`: the model `{model}` needs a `provider` beside it")));
        }
        match (name.as_str(), &self.dev_exec) {
            (mock::NAME, _) => Ok(self.mock.clone()),
            (dev_exec::NAME, Some(dev_exec)) => Ok(dev_exec.clone()),
            (dev_exec::NAME, None) => Err(Error::new(
                ErrorKind::Refused,
                "`dev/exec` is switched off here; the operator can switch it on with HEARTH_DEV_EXEC=1",
            )),
            _ => Err(invalid(format!(
                "agent `{name}` has nothing to run: give it `code`, or a `provider` and a `model`"
            ))),
        }
    }
}

/// The definitions of the built-in agents. Where `dev/exec` is switched off, leave out its one.
pub fn built_in_definitions() -> Vec<AgentDefinition> {
    let definition = |name: &str, description: &str, tools: &str| AgentDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        tools: vec![ToolPattern(tools.to_owned())],
        ..AgentDefinition::default()
    };
    vec![
        definition(mock::NAME, mock::DESCRIPTION, "*"),
        definition(dev_exec::NAME, dev_exec::DESCRIPTION, "mcp__sandbox__*"),
    ]
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
