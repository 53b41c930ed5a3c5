//! Agents and skills.

use serde_json::Value;

use crate::call::{Call, segment, with_query};
use crate::{Client, Error, Page};

/// The definitions of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definitions {
    Agents,
    Skills,
}

impl Definitions {
    /// As paths and lists name them.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Skills => "skills",
        }
    }

    fn path(self) -> String {
        format!("/v1/{}", self.as_str())
    }

    fn of(self, name: &str) -> String {
        format!("/v1/{}/{}", self.as_str(), segment(name))
    }
}

impl Client {
    pub async fn list_definitions(&self, kind: Definitions, page: &Page) -> Result<Value, Error> {
        self.read(with_query(&kind.path(), page)?).await
    }

    pub async fn definition(&self, kind: Definitions, name: &str) -> Result<Value, Error> {
        self.read(kind.of(name)).await
    }

    /// Makes a dynamic definition.
    pub async fn create_definition(&self, kind: Definitions, definition: &Value) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::post(kind.path(), definition, None)?).await?.body)
    }

    /// Changes the fields that are given of a dynamic definition.
    pub async fn change_definition(&self, kind: Definitions, name: &str, fields: &Value) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::patch(kind.of(name), fields)?).await?.body)
    }

    /// Retires a dynamic definition: its name opens nothing any more.
    pub async fn retire_definition(&self, kind: Definitions, name: &str) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::delete(kind.of(name))).await?.body)
    }

    /// A new version of the same agent, which may only narrow.
    pub async fn fork_agent(&self, name: &str, overrides: &Value) -> Result<Value, Error> {
        let path = format!("{}/fork", Definitions::Agents.of(name));
        Ok(self.fetch::<Value>(Call::post(path, overrides, None)?).await?.body)
    }

    /// A new agent without a tie to its source; `clone` holds its name and what is to differ.
    pub async fn clone_agent(&self, name: &str, clone: &Value) -> Result<Value, Error> {
        let path = format!("{}/clone", Definitions::Agents.of(name));
        Ok(self.fetch::<Value>(Call::post(path, clone, None)?).await?.body)
    }
}
