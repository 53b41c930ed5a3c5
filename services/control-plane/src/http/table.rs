//! The table of routes: each is registered together with its description, so that the OpenAPI
//! document lists what is served and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};
use hearth_types::Fault;
use serde_json::Value;

use super::gateway::Gateway;
use super::grpc;
use super::layers;
use super::mcp;
use super::negotiate::method_not_allowed;
use super::openapi::{Access, Operation, Tag};
use super::reply::Refusal;

/// A route as it is documented.
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub operation: Operation,
}

/// Routes, those that ask for a token and those that do not.
pub struct Table {
    protected: Router<Gateway>,
    /// Ask for a token, and take no place among the requests in flight.
    unbounded: Router<Gateway>,
    public: Router<Gateway>,
    routes: Vec<Route>,
}

impl Table {
    pub fn new() -> Self {
        Self { protected: Router::new(), unbounded: Router::new(), public: Router::new(), routes: Vec::new() }
    }

    pub fn get<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.add("get", MethodFilter::GET, path, handler, operation)
    }

    pub fn post<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.add("post", MethodFilter::POST, path, handler, operation)
    }

    pub fn put<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.add("put", MethodFilter::PUT, path, handler, operation)
    }

    pub fn patch<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.add("patch", MethodFilter::PATCH, path, handler, operation)
    }

    pub fn delete<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.add("delete", MethodFilter::DELETE, path, handler, operation)
    }

    fn add<H, T>(
        mut self,
        method: &'static str,
        filter: MethodFilter,
        path: &'static str,
        handler: H,
        operation: Operation,
    ) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        let router = match operation.access() {
            Access::Public => &mut self.public,
            Access::Unbounded => &mut self.unbounded,
            Access::Protected => &mut self.protected,
        };
        *router = std::mem::take(router).route(path, on(filter, handler));
        self.routes.push(Route { method, path, operation });
        self
    }

    /// A file that is not part of the interface and needs no token.
    pub fn file<H, T>(mut self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Gateway>,
        T: 'static,
    {
        self.public = self.public.route(path, on(MethodFilter::GET, handler));
        self
    }

    /// Adds the route that describes all routes, itself included.
    pub fn described(mut self, document: fn(&[Route]) -> Value) -> Self {
        let operation = Operation::new(Tag::Health, "openapi", "This document").public().answers("Document");
        self.routes.push(Route { method: "get", path: "/openapi.json", operation });
        let text: Arc<str> = document(&self.routes).to_string().into();
        let handler = move || async move { ([(header::CONTENT_TYPE, "application/json")], text.to_string()) };
        self.public = self.public.route("/openapi.json", on(MethodFilter::GET, handler));
        self
    }

    #[cfg(test)]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The service: unknown paths and wrong methods are told only to those who may ask.
    pub fn into_router(self, gateway: Gateway) -> Router {
        let protected = self
            .protected
            .fallback(|| async { Refusal::from(Fault::not_found()).into_response() })
            .method_not_allowed_fallback(refused_method)
            .layer(from_fn_with_state(gateway.clone(), layers::identify))
            .layer(from_fn_with_state(gateway.clone(), layers::enter));
        let unbounded = self
            .unbounded
            .method_not_allowed_fallback(refused_method)
            .layer(from_fn_with_state(gateway.clone(), layers::identify));
        let public = self.public.method_not_allowed_fallback(refused_method);
        let seen = |routes: Router<Gateway>| {
            routes
                .layer(from_fn_with_state(gateway.clone(), layers::check_names))
                .layer(from_fn(layers::observe))
                .with_state(gateway.clone())
        };
        let http = seen(Router::new().merge(protected).merge(unbounded).merge(public));
        let others = Router::new().merge(mcp::router(&gateway)).merge(grpc::router(http.clone(), &gateway));
        http.merge(seen(others.with_state(())))
    }
}

/// The one refusal whose status is not its code's: HTTP has a status of its own for it, and the contract no
/// code that says more than that the request is wrong.
async fn refused_method(method: Method) -> axum::response::Response {
    let mut response = Refusal::from(method_not_allowed(&method)).into_response();
    *response.status_mut() = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    response
}
