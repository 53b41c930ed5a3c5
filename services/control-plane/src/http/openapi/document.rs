//! Putting the document together.

use serde_json::{Map, Value, json};

use super::schemas::schemas;
use super::{Access, Content, Operation, Parameter, Place};
use crate::http::table::Route;

/// Refusals that any operation with a token may meet.
const COMMON: &[u16] = &[400, 401, 403, 404, 429, 500, 503, 504];
/// Those that commands may meet besides.
const COMMANDS: &[u16] = &[409, 410, 413, 422];

/// The OpenAPI 3.1 document of these routes.
pub fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(&route.operation, route.method);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hearth",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Resident sub-agents and warm sandboxes. Errors are typed; retryable ones say when to come back.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
            "responses": { "Error": error_response() },
            "headers": {
                "TraceResponse": {
                    "description": "The trace of this request, as `traceparent` would carry it.",
                    "schema": { "type": "string", "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$" },
                },
            },
        },
    })
}

fn error_response() -> Value {
    json!({
        "description": "A refusal or failure.",
        "headers": {
            "traceresponse": { "$ref": "#/components/headers/TraceResponse" },
            "Retry-After": { "description": "Seconds.", "schema": { "type": "integer", "minimum": 1 } },
        },
        "content": { "application/json": { "schema": reference("Error") } },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn operation(operation: &Operation, method: &str) -> Value {
    let (is_post, is_command) = (method == "post", method != "get");
    let mut parameters: Vec<Value> = operation.parameters.iter().map(parameter).collect();
    if is_post {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false, "schema": reference("IdempotencyKey"),
        }));
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag.as_str()],
        "parameters": parameters,
        "responses": responses(operation, is_command),
    });
    if let Some((schema, required)) = operation.body {
        described["requestBody"] =
            json!({ "required": required, "content": { "application/json": { "schema": reference(schema) } } });
    }
    if let Some(media) = operation.takes {
        described["requestBody"] = json!({ "required": true, "content": binary(media) });
    }
    if operation.access == Access::Public {
        described["security"] = json!([{}, { "token": [] }]);
    }
    described
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.place == Place::Path,
        "schema": reference(parameter.schema),
    })
}

fn responses(operation: &Operation, is_command: bool) -> Value {
    let mut responses = Map::new();
    for (status, content) in &operation.answers {
        let content = match content {
            Content::Json(schema) => json!({ "application/json": { "schema": reference(schema) } }),
            Content::Stream => stream(),
            Content::JsonOrStream(schema) => {
                let mut both = stream();
                both["application/json"] = json!({ "schema": reference(schema) });
                both
            }
            Content::Binary(media) => binary(media),
            Content::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        };
        let mut response = json!({
            "description": "The answer.",
            "headers": { "traceresponse": { "$ref": "#/components/headers/TraceResponse" } },
            "content": content,
        });
        if is_command {
            response["headers"]["Idempotent-Replay"] =
                json!({ "description": "`true`: the first answer of this key.", "schema": { "const": "true" } });
        }
        responses.insert(status.to_string(), response);
    }
    let refusals: Vec<u16> = match (operation.access, is_command) {
        (Access::Public, _) => vec![500],
        (_, false) => COMMON.to_vec(),
        (_, true) => [COMMON, COMMANDS].concat(),
    };
    for status in refusals {
        let refusal = json!({ "$ref": "#/components/responses/Error" });
        responses.entry(status.to_string()).or_insert(refusal);
    }
    Value::Object(responses)
}

fn binary(media: &str) -> Value {
    json!({ media: { "schema": { "type": "string", "format": "binary" } } })
}

fn stream() -> Value {
    json!({ "text/event-stream": { "schema": { "type": "string" } } })
}
