//! A request, decoded so far that a handler can ask for its parts by type.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::{HeaderMap, Method};
use hearth_api::{
    AgentOverrides, Caller, Cancel, CloneAgent, Close, CreateRun, Input, Key, ListRuns, OpenResident, Page, Poll,
    ReplaySession, SandboxOverride, Send, SessionMessage, SkillOverrides, TakeSnapshot,
};
use hearth_library::{Skill, check_agent_name, check_skill_name};
use hearth_types::{AgentDefinition, Fault, FaultCode, Principal, Role, TraceContext, check_id, limits};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::gateway::{Gateway, Place};
use super::reply::Refusal;
use super::{intake, json, negotiate, query};

pub const IDS: &str = "1 to 128 characters of A-Z a-z 0-9 _ -";

/// The trace that the layer of traces gave a request.
#[derive(Clone)]
pub struct RequestTrace(pub TraceContext);

pub struct Call {
    pub gateway: Gateway,
    pub headers: HeaderMap,
    principal: Principal,
    trace: Option<TraceContext>,
    /// Held by whoever goes on with the request, also after its client has gone.
    pub place: Option<Place>,
    /// Whether a key counts: the other commands can be repeated as they are.
    is_post: bool,
    /// Method and path, unescaped, so that two spellings of one path are one.
    scope: String,
    params: Vec<(String, String)>,
    query: Option<String>,
    takes_body: bool,
    body: Vec<u8>,
}

impl FromRequest<Gateway> for Call {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, Refusal> {
        let BodyCall(mut call, body) = BodyCall::from_request(request, gateway).await?;
        if call.takes_body {
            // Its memory is counted while it arrives; what is decoded from it is the use case's to bound.
            call.body = intake::receive(&call.headers, body, gateway.bodies()).await?.bytes;
        }
        Ok(call)
    }
}

/// A request whose body is a stream, for its handler to read.
pub struct BodyCall(pub Call, pub Body);

impl FromRequest<Gateway> for BodyCall {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, gateway).await;
        let params = params.map_err(|_| Fault::invalid("path", parts.uri.path(), "percent-encoded UTF-8"))?;
        let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let principal = parts.extensions.remove::<Principal>().ok_or_else(unauthenticated)?;
        let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
        let scope = format!("{} {path}", parts.method);
        let is_post = parts.method == Method::POST;
        let takes_body = !matches!(parts.method, Method::GET | Method::HEAD | Method::DELETE);
        let call = Call {
            gateway: gateway.clone(),
            principal,
            trace: parts.extensions.remove::<RequestTrace>().map(|trace| trace.0),
            place: parts.extensions.remove::<Place>(),
            is_post,
            scope,
            params,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers,
            takes_body,
            body: Vec::new(),
        };
        Ok(Self(call, body))
    }
}

pub fn unauthenticated() -> Fault {
    Fault::new(FaultCode::Unauthenticated, "send `Authorization: Bearer TOKEN` with a token that is configured here")
}

impl Call {
    fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The id in the path.
    pub fn id(&self) -> Result<String, Fault> {
        let id = self.param("id");
        check_id(id).map_err(|_| Fault::invalid("id", id, IDS))?;
        Ok(id.to_owned())
    }

    /// The name of a skill in the path.
    pub fn skill_name(&self) -> Result<String, Fault> {
        let name = self.param("name");
        check_skill_name(name).map_err(|fault| Fault::invalid("name", name, fault.allowed))?;
        Ok(name.to_owned())
    }

    /// The name of an agent in the path.
    pub fn agent_name(&self) -> Result<String, Fault> {
        let name = self.param("name");
        agent_name("name", name).map(|()| name.to_owned())
    }

    pub fn caller(&self) -> Caller {
        Caller { principal: self.principal.clone(), run: None, key: None, trace: self.trace.clone() }
    }

    /// A request without parameters.
    pub fn question(&self) -> Result<Caller, Fault> {
        query::decode::<Nothing>(self.query.as_deref())?;
        Ok(self.caller())
    }

    /// The parameters of a request.
    pub fn asked<T: DeserializeOwned + Checked>(&self) -> Result<(Caller, T), Fault> {
        let request: T = query::decode(self.query.as_deref())?;
        request.check()?;
        Ok((self.caller(), request))
    }

    /// The workspace in the path, and its tenant's caller.
    pub fn workspace(&self) -> Result<(Caller, String), Fault> {
        let (caller, TenantOnly { tenant }) = self.asked::<TenantOnly>()?;
        let name = self.param("name");
        if !hearth_sandbox::is_workspace_name(name) {
            return Err(Fault::invalid("name", name, "[a-z0-9][a-z0-9_-]{0,63}"));
        }
        Ok((of_tenant(caller, tenant)?, name.to_owned()))
    }

    /// The parameters of a list that is not narrowed by anything but the tenant.
    pub fn page(&self) -> Result<(Caller, Page), Fault> {
        let (caller, request) = self.asked::<TenantPage>()?;
        let caller = of_tenant(caller, request.tenant)?;
        Ok((caller, Page { limit: request.limit, cursor: request.cursor }))
    }

    /// The filters of the lists of runs.
    pub fn runs(&self) -> Result<(Caller, ListRuns), Fault> {
        let (caller, request) = self.asked::<ListRuns>()?;
        if let Some(tenant) = &request.tenant {
            may_ask_for(&caller.principal, tenant)?;
        }
        Ok((caller, request))
    }

    /// The body of a command, and its caller with the idempotency key.
    pub fn command<T: DeserializeOwned + Checked>(&mut self) -> Result<(Caller, T), Fault> {
        query::decode::<Nothing>(self.query.as_deref())?;
        let key = if self.is_post { negotiate::idempotency_key(&self.headers)? } else { None };
        let body: Value = json::parse(&std::mem::take(&mut self.body))?;
        let key = key.map(|key| Key { key, scope: self.scope.clone(), digest: json::digest(&body) });
        let request: T = json::decode(body)?;
        request.check()?;
        Ok((Caller { key, ..self.caller() }, request))
    }
}

/// Who may see every tenant looks at one as its operator does.
fn of_tenant(caller: Caller, tenant: Option<String>) -> Result<Caller, Fault> {
    let Some(tenant) = tenant else { return Ok(caller) };
    may_ask_for(&caller.principal, &tenant)?;
    let role = Role::Operator.min(caller.principal.role);
    Ok(Caller { principal: Principal { tenant, role, ..caller.principal }, ..caller })
}

/// Every tenant's rows are for admins alone.
fn may_ask_for(principal: &Principal, tenant: &str) -> Result<(), Fault> {
    check_id(tenant).map_err(|_| Fault::invalid("tenant", tenant, IDS))?;
    if principal.role == Role::Admin || principal.tenant == tenant {
        return Ok(());
    }
    Err(Fault::new(FaultCode::PermissionDenied, "only an admin may ask for a tenant: leave `tenant` away"))
}

/// No field at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPage {
    limit: Option<u32>,
    cursor: Option<String>,
    tenant: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantOnly {
    tenant: Option<String>,
}

/// What the types of a request's fields do not say: the form of ids and names, and ranges.
pub trait Checked {
    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

fn id(field: &str, value: Option<&String>) -> Result<(), Fault> {
    value.map_or(Ok(()), |value| check_id(value).map_err(|_| Fault::invalid(field, value, IDS)))
}

fn agent_name(field: &str, value: &str) -> Result<(), Fault> {
    check_agent_name(value).map_err(|fault| Fault::invalid(field, value, fault.allowed))
}

fn page(limit: Option<u32>) -> Result<(), Fault> {
    match limit {
        Some(limit) if !(1..=limits::LIST_LIMIT_MAX).contains(&limit) => {
            Err(Fault::invalid("limit", limit, query::LIMIT))
        }
        _ => Ok(()),
    }
}

impl Checked for Nothing {}
impl Checked for TakeSnapshot {}
impl Checked for TenantOnly {}
impl Checked for Poll {}
impl Checked for Input {}
impl Checked for Cancel {}
impl Checked for Close {}
impl Checked for Send {}
impl Checked for SandboxOverride {}
// What a definition may hold is known to the library.
impl Checked for AgentDefinition {}
impl Checked for AgentOverrides {}
impl Checked for CloneAgent {}
impl Checked for Skill {}
impl Checked for SkillOverrides {}

impl Checked for CreateRun {
    fn check(&self) -> Result<(), Fault> {
        agent_name("agent", &self.agent)?;
        id("session_id", self.session_id.as_ref())
    }
}

impl Checked for OpenResident {
    fn check(&self) -> Result<(), Fault> {
        agent_name("agent", &self.agent)?;
        id("parent_run_id", self.parent_run_id.as_ref())
    }
}

impl Checked for SessionMessage {
    fn check(&self) -> Result<(), Fault> {
        self.agent.as_ref().map_or(Ok(()), |name| agent_name("agent", name))
    }
}

impl Checked for ReplaySession {
    fn check(&self) -> Result<(), Fault> {
        agent_name("agent", &self.agent)
    }
}

impl Checked for ListRuns {
    fn check(&self) -> Result<(), Fault> {
        self.agent.as_ref().map_or(Ok(()), |name| agent_name("agent", name))?;
        page(self.limit)
    }
}

impl Checked for TenantPage {
    fn check(&self) -> Result<(), Fault> {
        page(self.limit)
    }
}
