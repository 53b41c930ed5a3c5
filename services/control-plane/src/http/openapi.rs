//! The description of the interface: operations as they are registered, and the document made of
//! them.

mod document;
mod schemas;

pub use document::document;

/// Media types of bodies that are no JSON.
pub const TAR: &str = "application/x-tar";
pub const SNAPSHOT: &str = "application/x-hearth-snapshot";

/// The group of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    Runs,
    Residents,
    Sessions,
    Agents,
    Members,
    Sandboxes,
    Workspaces,
    Snapshots,
    Health,
}

impl Tag {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Residents => "residents",
            Self::Sessions => "sessions",
            Self::Agents => "agents",
            Self::Members => "members",
            Self::Sandboxes => "sandboxes",
            Self::Workspaces => "workspaces",
            Self::Snapshots => "snapshots",
            Self::Health => "health",
        }
    }
}

/// Who may call, and whether the call counts as a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Protected,
    Unbounded,
    Public,
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Query,
    Header,
}

#[derive(Debug, Clone, Copy)]
struct Parameter {
    place: Place,
    name: &'static str,
    schema: &'static str,
}

/// What an answer holds.
#[derive(Debug, Clone, Copy)]
enum Content {
    Json(&'static str),
    Stream,
    JsonOrStream(&'static str),
    Text,
    /// Bytes of this media type.
    Binary(&'static str),
}

/// One operation: what it takes and what it answers, by the names of schemas.
#[derive(Debug, Clone)]
pub struct Operation {
    tag: Tag,
    id: &'static str,
    summary: &'static str,
    access: Access,
    parameters: Vec<Parameter>,
    /// Schema, and whether a body has to be there.
    body: Option<(&'static str, bool)>,
    /// The media type of a body that is no JSON.
    takes: Option<&'static str>,
    answers: Vec<(u16, Content)>,
}

impl Operation {
    pub fn new(tag: Tag, id: &'static str, summary: &'static str) -> Self {
        let (parameters, answers) = (Vec::new(), Vec::new());
        Self { tag, id, summary, access: Access::Protected, parameters, body: None, takes: None, answers }
    }

    pub const fn access(&self) -> Access {
        self.access
    }

    pub fn public(mut self) -> Self {
        self.access = Access::Public;
        self
    }

    pub fn unbounded(mut self) -> Self {
        self.access = Access::Unbounded;
        self
    }

    fn parameter(mut self, place: Place, name: &'static str, schema: &'static str) -> Self {
        self.parameters.push(Parameter { place, name, schema });
        self
    }

    pub fn path(self, name: &'static str, schema: &'static str) -> Self {
        self.parameter(Place::Path, name, schema)
    }

    pub fn query(self, name: &'static str, schema: &'static str) -> Self {
        self.parameter(Place::Query, name, schema)
    }

    pub fn header(self, name: &'static str, schema: &'static str) -> Self {
        self.parameter(Place::Header, name, schema)
    }

    /// The parameters of every list.
    pub fn pages(self) -> Self {
        self.page("Cursor")
    }

    fn page(self, cursor: &'static str) -> Self {
        self.query("limit", "Limit").query("cursor", cursor).query("tenant", "Id")
    }

    /// The parameters of the lists of runs.
    pub fn filters(self) -> Self {
        self.query("state", "RunState")
            .query("agent", "AgentName")
            .query("root_run_id", "Id")
            .query("parent_run_id", "Id")
            .query("resident", "Flag")
            .page("RunCursor")
    }

    pub fn body(mut self, schema: &'static str) -> Self {
        self.body = Some((schema, true));
        self
    }

    /// A body in which every field is optional may be absent.
    pub fn optional_body(mut self, schema: &'static str) -> Self {
        self.body = Some((schema, false));
        self
    }

    pub fn answers(self, schema: &'static str) -> Self {
        self.or(200, schema)
    }

    pub fn or(mut self, status: u16, schema: &'static str) -> Self {
        self.answers.push((status, Content::Json(schema)));
        self
    }

    /// The 200 may be a stream instead, if the client asks for one.
    pub fn streams(mut self) -> Self {
        for (status, content) in &mut self.answers {
            if let (200, Content::Json(schema)) = (*status, *content) {
                *content = Content::JsonOrStream(schema);
            }
        }
        self
    }

    pub fn streams_only(mut self) -> Self {
        self.answers.push((200, Content::Stream));
        self
    }

    /// A body that is no JSON.
    pub fn takes(mut self, media: &'static str) -> Self {
        self.takes = Some(media);
        self
    }

    pub fn answers_binary(mut self, media: &'static str) -> Self {
        self.answers.push((200, Content::Binary(media)));
        self
    }

    pub fn answers_text(mut self) -> Self {
        self.answers.push((200, Content::Text));
        self
    }
}
